/** Numbers as people read them, with their units. */
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** 1234567 → "1,234,567". null: "–". */
export function count(value: number | null | undefined): string {
  return value == null ? "–" : whole.format(value);
}

const IN_FULL_BELOW = 1_000_000;

/** 1234567 → "1.2M", below a million in full. */
export function short(value: number | null | undefined): string {
  if (value == null) return "–";
  return Math.abs(value) < IN_FULL_BELOW ? whole.format(Math.round(value)) : compact.format(value);
}

/** 0.1234 → "12.3 %". */
export function percent(share: number | null | undefined, digits = 1): string {
  return share == null || !Number.isFinite(share) ? "–" : `${(share * 100).toFixed(digits)} %`;
}

/** 0.25 → "0.25/s". null: "". */
export function perSecond(rate: number | null | undefined): string {
  if (rate == null) return "";
  return `${rate < 10 ? rate.toFixed(rate > 0 && rate < 0.1 ? 4 : 2) : short(rate)}/s`;
}

/** 12.3 → "12.3 ms", 1234 → "1.23 s", 90,000 → "1 min 30 s". */
export function milliseconds(ms: number | null | undefined): string {
  if (ms == null || !Number.isFinite(ms)) return "–";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 100) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)} s`;
  return duration(ms / 1000);
}

/** 90 → "1 min 30 s", 7200 → "2 h", 86,400 → "1 day". The two largest units that are not zero. */
export function duration(seconds: number): string {
  const left = Math.round(seconds);
  if (left < 1) return "0 s";
  const units: [string, number][] = [
    ["day", 86_400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const parts: string[] = [];
  let rest = left;
  for (const [name, size] of units) {
    const many = Math.floor(rest / size);
    rest -= many * size;
    if (many > 0) parts.push(`${many} ${name === "day" && many > 1 ? "days" : name}`);
  }
  return parts.slice(0, 2).join(" ");
}

/** The change from one figure to another as a share: +0.25 is a quarter more. null where there was nothing and now is
 * something. */
export function change(before: number, now: number): number | null {
  if (before === now) return 0;
  return before === 0 ? null : (now - before) / before;
}

/** +0.25 → "+25.0 %". */
export function signedPercent(share: number | null): string {
  if (share == null) return "new";
  return `${share > 0 ? "+" : share < 0 ? "−" : ""}${Math.abs(share * 100).toFixed(1)} %`;
}
