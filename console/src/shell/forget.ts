import type { QueryClient } from "@tanstack/react-query";
import type { ConsoleSession } from "../api/session";

/** Whatever was read, made or kept for one person goes with their session: the next one signs in on the same page. */
export function forgetOthers(queries: QueryClient, sessionKey: readonly string[]): () => void {
  let known: string | null = null;
  return queries.getQueryCache().subscribe(({ type, query }) => {
    if (type !== "updated" || query.queryKey[0] !== sessionKey[0] || query.state.data === undefined) return;
    const now = (query.state.data as ConsoleSession).signed_in?.account.id ?? null;
    if (now === known) return;
    const before = known;
    known = now;
    if (before === null) return;
    const theirs = {
      predicate: (each: { queryKey: readonly unknown[] }) => each.queryKey[0] !== sessionKey[0],
    };
    // somebody else, in another window: what is on the page is read again
    if (now === null) queries.removeQueries(theirs);
    else void queries.resetQueries(theirs);
  });
}
