/** Rows of usage as lines of a chart, and as totals by group. */
import type { Schemas } from "../../api/client";
import type { Series } from "../../components/chart-cells";
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

function nameOf(row: Totals, by: UsageGroup | undefined): string {
  if (by === "project") return row.project_name ?? groupOf(row, by);
  return by === "key" ? (row.key_name ?? groupOf(row, by)) : groupOf(row, by);
}

export interface GroupTotals {
  group: string;
  name: string;
  /** Of a key; null of all else. */
  project: string | null;
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
      name: nameOf(row, by),
      project: by === "key" ? (row.project_name ?? row.project_id ?? null) : null,
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

/** A line for each of the largest groups and one for the rest; hours and days without usage are zero. rows: of these
 * groups at least; whole: of all, however grouped. */
export function seriesOf(
  rows: Totals[],
  whole: Totals[],
  by: UsageGroup | undefined,
  figure: Figure,
  period: Period,
): { times: number[]; series: Series[] } {
  const times = moments(period);
  const place = new Map(times.map((time, at) => [time, at]));
  const added = (some: Totals[]): number[] => {
    const line = times.map(() => 0);
    for (const row of some) {
      const at = place.get(momentOf(row));
      if (at !== undefined) line[at] = (line[at] ?? 0) + row[figure];
    }
    return line;
  };
  const all = added(whole);
  if (by === undefined) return { times, series: whole.length > 0 ? [{ label: "all", values: all }] : [] };
  const largest = totalsOf(rows, by, figure).slice(0, MOST_SERIES);
  const lines = largest.map(({ group, name, project }) => ({
    label: project === null ? name : `${project} · ${name}`,
    values: added(rows.filter((row) => groupOf(row, by) === group)),
  }));
  // asked one after the other: what came in between is in the groups and not yet in the whole
  const rest = all.map((value, at) =>
    Math.max(0, value - lines.reduce((sum, line) => sum + (line.values[at] ?? 0), 0)),
  );
  const some = rest.some((value) => value > 0);
  return { times, series: [...lines, ...(some ? [{ label: "all others", values: rest }] : [])] };
}
