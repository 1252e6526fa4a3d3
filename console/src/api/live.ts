/** What a page shows stays true while it is open: its queries are asked again when what they tell of has changed. */
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { type Permission, useMyself } from "../shell/session";

export const TOPICS = [
  "usage",
  "requests",
  "fleet",
  "slo",
  "diagnosis",
  "prefixes",
  "completions",
  "releases",
  "evals",
  "reviews",
  "reconciliations",
] as const;
export type Topic = (typeof TOPICS)[number];

/** What the API asks of who listens: that of the endpoints which tell the contents. */
const NEEDS: Record<Topic, Permission> = {
  usage: "usage.read",
  requests: "requests.read",
  fleet: "fleet.read",
  slo: "usage.read",
  diagnosis: "requests.read",
  prefixes: "usage.read",
  completions: "usage.read",
  releases: "releases.read",
  evals: "evals.read",
  reviews: "reviews.vote",
  reconciliations: "reconciliation.read",
};

/** How often a page asks while it hears of no news by itself. */
export const EVERY_MS = 5000;
/** While it does: what it shows may go by the clock. */
export const AT_LEAST_EVERY_MS = 60_000;
/** After a refusal, until the next stream is tried. */
export const REFUSED_MS = 60_000;

/** Listens to `GET /admin/v1/events`, and asks every few seconds where that is refused or lost; neither while the page
 * is hidden. onNews: something may have changed. Returns what ends it. */
export function listen(topics: readonly Topic[], onNews: () => void): () => void {
  let stream: EventSource | null = null;
  let heard = false;
  let asked = Date.now();
  let again = 0;

  function news() {
    asked = Date.now();
    onNews();
  }
  function close() {
    stream?.close();
    stream = null;
    heard = false;
  }
  function open() {
    const opened = new EventSource(`/admin/v1/events?topics=${topics.join(",")}`);
    stream = opened;
    opened.onopen = () => {
      heard = true;
      news();
    };
    opened.addEventListener("news", news);
    opened.onerror = () => {
      heard = false;
      // refused: the browser tries no more; else it connects again by itself
      if (opened.readyState === EventSource.CLOSED && stream === opened) {
        close();
        again = Date.now() + REFUSED_MS;
      }
    };
  }
  function look() {
    if (document.hidden) {
      close();
      return;
    }
    if (stream === null && topics.length > 0 && Date.now() >= again) open();
    if (Date.now() - asked >= (heard ? AT_LEAST_EVERY_MS : EVERY_MS)) news();
  }
  const timer = setInterval(look, EVERY_MS);
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
    close();
  };
}

/** Ask the queries of these keys again when one of these topics has news; not while the page is hidden. */
export function useLive(topics: readonly Topic[], keys: readonly QueryKey[]): void {
  const client = useQueryClient();
  const { can } = useMyself();
  const named = JSON.stringify([topics.filter((topic) => can(NEEDS[topic])), keys]);
  useEffect(() => {
    const [heard, asked] = JSON.parse(named) as [Topic[], QueryKey[]];
    return listen(heard, () => {
      for (const queryKey of asked) void client.invalidateQueries({ queryKey });
    });
  }, [client, named]);
}
