/** The counters of limits: what they are called and in which unit. */
import type { Schemas } from "../../api/client";

export type Limits = Schemas["Limits"];
export type Counter = keyof Limits;

export const COUNTERS: { name: Counter; label: string; unit: string }[] = [
  { name: "requests_per_minute", label: "Requests", unit: "per minute" },
  { name: "tokens_per_minute", label: "Tokens", unit: "per minute" },
  { name: "input_tokens_per_minute", label: "Input tokens", unit: "per minute" },
  { name: "output_tokens_per_minute", label: "Output tokens", unit: "per minute" },
  { name: "max_concurrency", label: "Requests at once", unit: "" },
  { name: "tokens_per_day", label: "Tokens", unit: "per day (UTC)" },
  { name: "money_micro_per_month", label: "Budget", unit: "per month (UTC)" },
  { name: "max_prompt_tokens", label: "Longest prompt", unit: "tokens" },
];

export function labelOf(counter: string): string {
  const found = COUNTERS.find((each) => each.name === counter);
  return found ? `${found.label} ${found.unit}`.trim() : counter.replaceAll("_", " ");
}

/** What a month's budget comes to by its end at the pace so far; null in its first day, which tells nothing. */
export function monthAtThisPace(used: number, now = new Date()): number | null {
  const begin = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1);
  const end = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1);
  const elapsed = now.getTime() - begin;
  return elapsed < DAY_MS ? null : Math.round((used * (end - begin)) / elapsed);
}

const DAY_MS = 86_400_000;
