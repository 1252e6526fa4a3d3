/** Rows of the prefix contract as lines of a chart, and by template. */
import type { Schemas } from "../../api/client";
import type { Series } from "../../components/chart-cells";

export type Share = Schemas["PrefixTotals"];

export interface Template {
  template: string;
  model: string;
  requests: number;
  reusable: number | null;
  cached: number | null;
  /** What ends most of the prompt tokens' reuse. */
  cause: string;
  part: string;
}

interface Sum {
  prompt: number;
  reusable: number;
  cached: number;
}

export function sharesByHour(rows: Share[]): { times: number[]; series: Series[] } {
  const hours = new Map<number, Sum>();
  for (const row of rows) {
    const at = new Date(row.hour ?? 0).getTime() / 1000;
    const sum = hours.get(at) ?? { prompt: 0, reusable: 0, cached: 0 };
    sum.prompt += row.prompt_tokens;
    sum.reusable += row.reusable_tokens;
    sum.cached += row.cached_tokens;
    hours.set(at, sum);
  }
  const times = [...hours.keys()].sort((one, other) => one - other);
  const line = (label: string, of: (sum: Sum) => number): Series => ({
    label,
    values: times.map((at) => {
      const sum = hours.get(at);
      return sum && sum.prompt > 0 ? of(sum) / sum.prompt : null;
    }),
  });
  return {
    times,
    series: [line("Reusable", (sum) => sum.reusable), line("Reused", (sum) => sum.cached)],
  };
}

/** One for each template and model, those with the most tokens that were not reusable first. */
export function byTemplate(rows: Share[]): Template[] {
  const groups = new Map<string, Share[]>();
  for (const row of rows) {
    const key = `${row.template}\n${row.model}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const lost = (row: Share) => row.prompt_tokens - row.reusable_tokens;
  const sum = (of: Share[], figure: (row: Share) => number) => of.reduce((all, row) => all + figure(row), 0);
  return [...groups.values()]
    .sort((one, other) => sum(other, lost) - sum(one, lost))
    .map((of) => {
      const causes = new Map<string, number>();
      for (const row of of) {
        const key = `${row.cause}\n${row.part}`;
        causes.set(key, (causes.get(key) ?? 0) + lost(row));
      }
      const [worst = "\n"] = [...causes.entries()].sort((one, other) => other[1] - one[1])[0] ?? [];
      const [cause = "", part = ""] = worst.split("\n");
      const prompt = sum(of, (row) => row.prompt_tokens);
      const first = of[0];
      return {
        template: first?.template ?? "",
        model: first?.model ?? "",
        requests: sum(of, (row) => row.requests),
        reusable: prompt > 0 ? sum(of, (row) => row.reusable_tokens) / prompt : null,
        cached: prompt > 0 ? sum(of, (row) => row.cached_tokens) / prompt : null,
        cause,
        part,
      };
    });
}
