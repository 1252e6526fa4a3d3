/** Rows of usage as lines of a chart, and as totals by group. */
import type { Schemas } from "../../api/client";
import type { Series } from "../../components/chart";
import type { USAGE_FIGURES, USAGE_GROUPS } from "../../shell/choices";
import { moments, type Period } from "./periods";

export type Totals = Schemas["UsageTotals"];
export type Figure = (typeof USAGE_FIGURES)[number];
export type UsageGroup = (typeof USAGE_GROUPS)[number];

export function groupOf(row: Totals, by: UsageGroup | undefined): string {
  if (by === undefined) return "all";
  return (by === "project" ? row.project_id : by === "key" ? row.key_id : row[by]) ?? "unknown";
}

function momentOf(row: Totals): number {
  return new Date(row.hour ?? `${row.day}T00:00:00Z`).getTime() / 1000;
}

export interface GroupTotals {
  group: string;
  requests: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  amount_micro: number;
}

/** One for each group, the largest first. */
export function totalsOf(rows: Totals[], by: UsageGroup | undefined, figure: Figure): GroupTotals[] {
  const groups = new Map<string, GroupTotals>();
  for (const row of rows) {
    const group = groupOf(row, by);
    const sum = groups.get(group) ?? {
      group,
      requests: 0,
      prompt_tokens: 0,
      cached_tokens: 0,
      completion_tokens: 0,
      amount_micro: 0,
    };
    sum.requests += row.requests;
    sum.prompt_tokens += row.prompt_tokens;
    sum.cached_tokens += row.cached_tokens;
    sum.completion_tokens += row.completion_tokens;
    sum.amount_micro += row.amount_micro;
    groups.set(group, sum);
  }
  return [...groups.values()].sort(
    (one, other) => other[figure] - one[figure] || one.group.localeCompare(other.group),
  );
}

export const MOST_SERIES = 5;

/** A line for each of the largest groups and one for the rest; hours and days without usage are zero. */
export function seriesOf(
  rows: Totals[],
  by: UsageGroup | undefined,
  figure: Figure,
  period: Period,
  nameOf: (group: string) => string,
): { times: number[]; series: Series[] } {
  const times = moments(period);
  const place = new Map(times.map((time, at) => [time, at]));
  const largest = totalsOf(rows, by, figure)
    .slice(0, MOST_SERIES)
    .map((each) => each.group);
  const values = new Map<string, number[]>();
  for (const row of rows) {
    const at = place.get(momentOf(row));
    if (at === undefined) continue;
    const group = groupOf(row, by);
    const name = largest.includes(group) ? group : "rest";
    const line = values.get(name) ?? times.map(() => 0);
    line[at] = (line[at] ?? 0) + row[figure];
    values.set(name, line);
  }
  const names = [...largest, ...(values.has("rest") ? ["rest"] : [])];
  return {
    times,
    series: names.map((name) => ({
      label: name === "rest" ? "all others" : nameOf(name),
      values: values.get(name) ?? times.map(() => 0),
    })),
  };
}
