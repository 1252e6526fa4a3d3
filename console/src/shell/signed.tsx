import { Navigate, useRouterState } from "@tanstack/react-router";
import { ErrorNotice, Loading } from "../components/notice";
import { MyselfProvider, useConsoleSession } from "./session";
import { Shell } from "./shell";

/** The pages, or the way to sign in and back here. */
export function Signed() {
  const session = useConsoleSession();
  const href = useRouterState({ select: (state) => state.location.href });
  if (session.isPending) return <Loading label="Loading the console" />;
  if (session.error && !session.data)
    return (
      <main className="entry">
        <ErrorNotice error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  const signedIn = session.data?.signed_in;
  if (!signedIn) return <Navigate to="/sign-in" search={{ next: href === "/" ? undefined : href }} replace />;
  return (
    <MyselfProvider signedIn={signedIn}>
      <Shell />
    </MyselfProvider>
  );
}
