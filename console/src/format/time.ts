/** Moments, relative and absolute. The API's are UTC; absolute ones are shown in the reader's zone with its name. */
const absoluteFormat = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const relativeFormat = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** "23 Nov 2026, 04:10:12 UTC". */
export function absolute(at: string | Date): string {
  return absoluteFormat.format(new Date(at));
}

/** "3 minutes ago", "in 2 days". */
export function relative(at: string | Date, now: Date = new Date()): string {
  const seconds = (new Date(at).getTime() - now.getTime()) / 1000;
  const size = Math.abs(seconds);
  if (size < 10) return "just now";
  const units: [Intl.RelativeTimeFormatUnit, number][] = [
    ["second", 1],
    ["minute", 60],
    ["hour", 3600],
    ["day", 86_400],
    ["month", 2_629_800],
    ["year", 31_557_600],
  ];
  let chosen = units[0] as [Intl.RelativeTimeFormatUnit, number];
  for (const unit of units) if (size >= unit[1]) chosen = unit;
  return relativeFormat.format(Math.trunc(seconds / chosen[1]), chosen[0]);
}

/** A moment that is not to come: the minute that runs is added up to its end. */
export function notAhead(at: string, now: Date = new Date()): string {
  return new Date(Math.min(Date.parse(at), now.getTime())).toISOString();
}

/** The UTC month of a moment, as the API's are: "2026-11". */
export function utcMonth(at: Date): string {
  return at.toISOString().slice(0, 7);
}
