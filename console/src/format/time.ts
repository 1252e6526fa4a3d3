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

/** "3 minutes ago", "in 2 days": to the nearest, so that what is a minute short of three days is no "2 days". */
export function relative(at: string | Date, now: Date = new Date()): string {
  const seconds = (new Date(at).getTime() - now.getTime()) / 1000;
  const size = Math.abs(seconds);
  if (size < 10) return "just now";
  // the first whose nearest whole number is less than one of the next
  const unit = UNITS.find((each) => Math.round(size / each.seconds) < each.most) ?? YEAR;
  return relativeFormat.format(Math.sign(seconds) * Math.round(size / unit.seconds), unit.name);
}

interface Unit {
  name: Intl.RelativeTimeFormatUnit;
  seconds: number;
  /** From so many on it is the next one's. */
  most: number;
}

const YEAR: Unit = { name: "year", seconds: 31_557_600, most: Number.POSITIVE_INFINITY };
const UNITS: Unit[] = [
  { name: "second", seconds: 1, most: 60 },
  { name: "minute", seconds: 60, most: 60 },
  { name: "hour", seconds: 3600, most: 24 },
  { name: "day", seconds: 86_400, most: 31 },
  { name: "month", seconds: 2_629_800, most: 12 },
  YEAR,
];

/** A moment that is not to come: the minute that runs is added up to its end. */
export function notAhead(at: string, now: Date = new Date()): string {
  return new Date(Math.min(Date.parse(at), now.getTime())).toISOString();
}

/** The UTC month of a moment, as the API's are: "2026-11". */
export function utcMonth(at: Date): string {
  return at.toISOString().slice(0, 7);
}
