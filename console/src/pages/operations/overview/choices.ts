/** Periods of the overview, and into what each is cut. */
export const OVERVIEW_PERIODS = ["1h", "6h", "24h", "7d", "30d"] as const;
export type OverviewPeriod = (typeof OVERVIEW_PERIODS)[number];

export const PERIOD_NAMES: Record<OverviewPeriod, string> = {
  "1h": "Last hour",
  "6h": "Last 6 hours",
  "24h": "Last 24 hours",
  "7d": "Last 7 days",
  "30d": "Last 30 days",
};

const HOUR_MS = 3_600_000;
const HOURS: Record<OverviewPeriod, number> = { "1h": 1, "6h": 6, "24h": 24, "7d": 168, "30d": 720 };
const STEP_MS = { minute: 60_000, hour: HOUR_MS, day: 24 * HOUR_MS };

export interface OverviewSpan {
  start: string;
  end: string;
  bucket: "minute" | "hour" | "day";
  /** Where each bucket begins, in seconds since 1970. */
  times: number[];
}

/** Whole minutes, hours or days (UTC) up to the one that runs. */
export function spanOf(period: OverviewPeriod, now: number): OverviewSpan {
  const bucket = bucketOf(HOURS[period]);
  const step = STEP_MS[bucket];
  const end = Math.floor(now / step + 1) * step;
  const start = end - HOURS[period] * HOUR_MS;
  const times: number[] = [];
  for (let at = start; at < end; at += step) times.push(at / 1000);
  return { start: new Date(start).toISOString(), end: new Date(end).toISOString(), bucket, times };
}

function bucketOf(hours: number): OverviewSpan["bucket"] {
  if (hours <= 6) return "minute";
  return hours <= 168 ? "hour" : "day";
}
