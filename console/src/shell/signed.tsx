import { useRouter } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { ErrorNotice, Loading } from "../components/notice";
import { MyselfProvider, useConsoleSession } from "./session";
import { Shell } from "./shell";

/** The pages, or the way to sign in and back here. */
export function Signed() {
  const session = useConsoleSession();
  if (session.isPending) return <Loading label="Loading the console" />;
  if (session.error && !session.data)
    return (
      <main className="entry">
        <ErrorNotice error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  const signedIn = session.data?.signed_in;
  if (!signedIn) return <ToSignIn />;
  return (
    <MyselfProvider signedIn={signedIn}>
      <Shell />
    </MyselfProvider>
  );
}

/** Once: while the next page loads this one is rendered on, by then at another address. */
function ToSignIn() {
  const router = useRouter();
  const [next] = useState(() => router.state.location.href);
  useEffect(() => {
    void router.navigate({ to: "/sign-in", search: next === "/" ? {} : { next }, replace: true });
  }, [router, next]);
  return <Loading label="Loading the sign-in page" />;
}
