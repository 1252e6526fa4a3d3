/** Who is signed in and what they may do. What is shown follows it; what is allowed the API decides. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useMemo } from "react";
import type { Schemas } from "../api/client";
import { type ConsoleSession, readSession, type SignedIn } from "../api/session";

export type Permission = Schemas["Permission"];
export const SESSION_KEY = ["session"] as const;

export function useConsoleSession() {
  return useQuery({ queryKey: SESSION_KEY, queryFn: readSession, staleTime: 60_000 });
}

/** Take up the session document that signing in, a new password and so on answer. */
export function useKeepSession() {
  const queries = useQueryClient();
  return (session: ConsoleSession) => queries.setQueryData(SESSION_KEY, session);
}

export interface Myself extends SignedIn {
  /** In an organization; without one: in one's own. A role holds in one's own organization, an operator's in every. */
  can: (permission: Permission, organizationId?: string) => boolean;
  /** What concerns the deployment as a whole. */
  canOperate: (permission: Permission) => boolean;
}

const MyselfContext = createContext<Myself | null>(null);

export function MyselfProvider({ signedIn, children }: { signedIn: SignedIn; children: ReactNode }) {
  const myself = useMemo<Myself>(() => {
    const has = (permission: Permission) => signedIn.permissions.includes(permission);
    return {
      ...signedIn,
      can: (permission, organizationId) =>
        has(permission) &&
        (signedIn.operator || organizationId === undefined || organizationId === signedIn.organization.id),
      canOperate: (permission) => signedIn.operator && has(permission),
    };
  }, [signedIn]);
  return <MyselfContext value={myself}>{children}</MyselfContext>;
}

export function useMyself(): Myself {
  const myself = useContext(MyselfContext);
  if (myself === null) throw new Error("useMyself outside of a signed-in page");
  return myself;
}
