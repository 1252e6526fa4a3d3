/** Periods that usage is shown for, and the one before each. All in UTC, as the roll-ups are. */
import type { PERIODS } from "../../shell/choices";

export type PeriodName = (typeof PERIODS)[number];

export interface Period {
  start: Date;
  end: Date;
  bucket: "hour" | "day";
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export const PERIOD_NAMES: Record<PeriodName, string> = {
  "24h": "Last 24 hours",
  "7d": "Last 7 days",
  "30d": "Last 30 days",
  month: "This month",
  "last-month": "Last month",
  "90d": "Last 90 days",
};

function dayOf(at: Date): Date {
  return new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()));
}

function monthOf(at: Date, later = 0): Date {
  return new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + later, 1));
}

/** Whole hours or whole days, today's included: totals are of those. */
export function periodOf(name: PeriodName, now: Date): Period {
  const tomorrow = new Date(dayOf(now).getTime() + DAY_MS);
  const days = (many: number): Period => ({
    start: new Date(tomorrow.getTime() - many * DAY_MS),
    end: tomorrow,
    bucket: "day",
  });
  switch (name) {
    case "24h": {
      const end = new Date(Math.floor(now.getTime() / HOUR_MS + 1) * HOUR_MS);
      return { start: new Date(end.getTime() - DAY_MS), end, bucket: "hour" };
    }
    case "7d":
      return days(7);
    case "30d":
      return days(30);
    case "90d":
      return days(90);
    case "month":
      return { start: monthOf(now), end: tomorrow, bucket: "day" };
    case "last-month":
      return { start: monthOf(now, -1), end: monthOf(now), bucket: "day" };
  }
}

/** As long, and just before. The month's: the same days of the month before. */
export function periodBefore(name: PeriodName, period: Period): Period {
  if (name === "month" || name === "last-month") {
    const start = monthOf(period.start, -1);
    const end = new Date(
      Math.min(start.getTime() + (period.end.getTime() - period.start.getTime()), period.start.getTime()),
    );
    return { start, end: name === "last-month" ? period.start : end, bucket: period.bucket };
  }
  const length = period.end.getTime() - period.start.getTime();
  return { start: new Date(period.start.getTime() - length), end: period.start, bucket: period.bucket };
}

/** Where each hour or day of a period begins, in seconds since 1970. */
export function moments(period: Period): number[] {
  const step = period.bucket === "hour" ? HOUR_MS : DAY_MS;
  const found: number[] = [];
  for (let at = period.start.getTime(); at < period.end.getTime(); at += step) found.push(at / 1000);
  return found;
}
