import { useEffect, useState } from "react";
import { absolute, relative } from "../format/time";

/** So long its seconds are told. */
const FRESH_MS = 60_000;

/** A moment: how long ago, and on hover (and to screen readers) exactly when. null: `none`. */
export function Time({ at, none = "never" }: { at: string | null | undefined; none?: string }) {
  const [, tick] = useState(0);
  const isFresh = at != null && Math.abs(Date.now() - new Date(at).getTime()) < FRESH_MS;
  const everyMs = isFresh ? 5000 : 30_000;
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  if (at == null) return <span className="quiet">{none}</span>;
  return (
    <time dateTime={at} title={absolute(at)}>
      {relative(at)}
    </time>
  );
}

/** Both at once, where there is room. */
export function FullTime({ at }: { at: string }) {
  return (
    <time dateTime={at}>
      {absolute(at)} <span className="quiet">({relative(at)})</span>
    </time>
  );
}
