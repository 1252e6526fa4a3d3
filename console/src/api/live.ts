/** What a page shows stays true while it is open: its queries are asked again when what they tell of has changed. */
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

export const TOPICS = [
  "usage",
  "requests",
  "fleet",
  "slo",
  "diagnosis",
  "prefixes",
  "releases",
  "evals",
  "reviews",
  "reconciliations",
] as const;
export type Topic = (typeof TOPICS)[number];

const EVERY_MS = 5000;

/** Ask the queries of these keys again when one of these topics has news; not while the page is hidden. */
export function useLive(topics: readonly Topic[], keys: readonly QueryKey[]): void {
  const client = useQueryClient();
  const named = JSON.stringify([topics, keys]);
  useEffect(() => {
    const [, asked] = JSON.parse(named) as [Topic[], QueryKey[]];
    const timer = setInterval(() => {
      if (document.hidden) return;
      for (const queryKey of asked) void client.invalidateQueries({ queryKey });
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, [client, named]);
}
