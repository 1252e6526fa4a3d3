import { Time } from "../../components/time";

/** Until when the secret before a rotation still opens; null: it does not. Moments are ISO 8601. */
export function stillOpens(until: string | null, now = new Date()): string | null {
  return until !== null && new Date(until) > now ? until : null;
}

/** That there is an earlier secret, as long as it opens. */
export function EarlierSecret({ until }: { until: string | null }) {
  const open = stillOpens(until);
  if (open === null) return null;
  return (
    <small className="quiet">
      old secret ends <Time at={open} />
    </small>
  );
}
