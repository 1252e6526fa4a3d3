/** Periods that pages of serving choose from. */
export const SERIES_PERIODS = ["1h", "24h", "7d", "28d"] as const;
export type SeriesPeriod = (typeof SERIES_PERIODS)[number];

export const LOOKS = ["15m", "1h", "6h", "24h", "7d"] as const;
export type Look = (typeof LOOKS)[number];

const SECONDS = { m: 60, h: 3_600, d: 86_400 } as const;

/** "15m" as milliseconds. */
export function lengthMs(name: string): number {
  const unit = name.slice(-1) as keyof typeof SECONDS;
  return Number(name.slice(0, -1)) * SECONDS[unit] * 1000;
}

/** How a period is cut so that a chart has some tens of points, and not thousands. */
export function bucketOf(period: SeriesPeriod): "minute" | "hour" | "day" {
  return period === "1h" ? "minute" : period === "28d" ? "day" : "hour";
}
