/** The console's own routes: signing in, one's account, one's sessions. The gateway's `control/console/README.md` says their shapes. */

import { csrfHeaders, keepCsrfToken, type Schemas } from "./client";
import { ApiError } from "./error";

export interface Account {
  id: string;
  member_id: string;
  email: string;
  name: string;
  has_password: boolean;
  totp: boolean;
  recovery_codes_left: number;
  created_at: string;
}

export interface OwnSession {
  id: string;
  method: string;
  network: string | null;
  user_agent: string | null;
  created_at: string;
  last_seen_at: string;
  expires_at: string;
  idle_expires_at: string;
  current: boolean;
}

export interface SignedIn {
  account: Account;
  organization: { id: string; name: string };
  operator: boolean;
  role: Schemas["Role"];
  permissions: Schemas["Permission"][];
  /** What all amounts of the deployment are in. */
  currency: string;
  session: OwnSession;
  csrf_token: string;
}

export interface ConsoleSession {
  signed_in: SignedIn | null;
  methods: { password: boolean; oidc: { name: string; start: string } | null };
}

export interface LinkPreview {
  kind: "first" | "invitation" | "reset";
  email: string | null;
  name: string | null;
  organization: string | null;
  expires_at: string;
}

async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await fetch(`/console/api/${path}`, {
    method,
    credentials: "same-origin",
    headers: {
      ...(method === "GET" ? {} : csrfHeaders()),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const answer = await response.json().catch(() => undefined);
  if (!response.ok) throw ApiError.of(response, answer);
  return answer as T;
}

async function askSession(method: string, path: string, body?: unknown): Promise<ConsoleSession> {
  return keep(await ask<ConsoleSession>(method, path, body));
}

function keep(session: ConsoleSession): ConsoleSession {
  keepCsrfToken(session.signed_in?.csrf_token ?? null);
  return session;
}

export const readSession = () => askSession("GET", "session");
export const signIn = (form: { email: string; password: string; totp?: string; organization_id?: string }) =>
  askSession("POST", "session", form);
export const readChoices = () => ask<{ data: { id: string; name: string }[] }>("GET", "oidc/choices");
export const chooseOrganization = (organization_id: string) =>
  askSession("POST", "oidc/choice", { organization_id });
export const leaveOrganization = () => askSession("DELETE", "membership");
export const signOut = () => askSession("DELETE", "session");
export const previewLink = (token: string) => ask<LinkPreview>("POST", "welcome/preview", { token });
export const acceptLink = (form: { token: string; password: string; email?: string; name?: string }) =>
  askSession("POST", "welcome", form);
export const changePassword = (form: { current_password: string; new_password: string }) =>
  askSession("POST", "password", form);
export const beginTotp = (password: string) =>
  ask<{ secret: string; uri: string }>("POST", "totp", { password });
export const confirmTotp = async (code: string) => {
  const answer = await ask<{ recovery_codes: string[]; session: ConsoleSession }>("POST", "totp/confirm", {
    code,
  });
  keep(answer.session);
  return answer;
};
export const disableTotp = (form: { password: string; code: string }) =>
  askSession("POST", "totp/disable", form);
export const newRecoveryCodes = (password: string) =>
  ask<{ recovery_codes: string[] }>("POST", "totp/recovery-codes", { password });
export const readSessions = () => ask<{ data: OwnSession[] }>("GET", "sessions");
export const endSession = (id: string) => ask<{ id: string }>("DELETE", `sessions/${encodeURIComponent(id)}`);
export const endOtherSessions = () => ask<{ ended: number }>("DELETE", "sessions?keep_current=true");
