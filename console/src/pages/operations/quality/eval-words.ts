/** Runs and comparisons of evals in words and numbers. Pure. */
import type { Schemas } from "../../../api/client";

export type Run = Schemas["Run"];
export type Comparison = Schemas["Comparison"];
export type SliceScore = Schemas["SliceScore"];
export type EvalItem = Schemas["EvalItem"];

/** What the gate's last look at a slice found. Shares, 0 to 1; a candidate that is worse has negative ones. */
export interface SliceVerdict {
  slice: string;
  decision: "pass" | "fail" | "inconclusive";
  reason: string;
  margin: number;
  n: number;
  drawn: number;
  clusters: number;
  difference: number;
  lower: number;
  upper: number;
  flip_share: number;
  items_needed: number;
  next_look: number | null;
}

export interface GateVerdict {
  decision: SliceVerdict["decision"];
  reason: string;
  slices: SliceVerdict[];
}

export const gateOf = (comparison: Comparison) => comparison.verdict as unknown as GateVerdict | null;

export const isUnder = (status: Run["status"]) => status === "queued" || status === "running";

/** Without a sign where it is rounded to 0. */
const fixed = (value: number, digits: number) => value.toFixed(digits).replace(/^-(?=0(\.0*)?$)/, "");

/** A difference in points: −0.0123 → "−1.23 points". */
export function points(share: number, digits = 2): string {
  const value = fixed(100 * share, digits);
  return `${Number(value) > 0 ? "+" : ""}${value.replace("-", "−")} points`;
}

/** As `points`, below an axis. */
export const shortPoints = (share: number) => points(share, 1).replace(" points", "");

export interface Moved {
  key: string;
  slice: string;
  seed: number;
  cluster: string;
  baseline: EvalItem;
  candidate: EvalItem;
  /** Candidate minus baseline. */
  difference: number;
}

/** Items that both answered, with other scores. */
export function movedItems(baseline: EvalItem[], candidate: EvalItem[]): Moved[] {
  const others = new Map(candidate.map((item) => [`${item.slice} ${item.seed}`, item]));
  return baseline
    .flatMap((item) => {
      const key = `${item.slice} ${item.seed}`;
      const other = others.get(key);
      if (other === undefined || other.score === item.score) return [];
      return {
        key,
        slice: item.slice,
        seed: item.seed,
        cluster: item.cluster,
        baseline: item,
        candidate: other,
        difference: other.score - item.score,
      };
    })
    .sort((one, other) => one.difference - other.difference || one.seed - other.seed);
}

/** Scores by slice, the slices in order. */
export function bySlice(scores: SliceScore[]): [string, SliceScore[]][] {
  const found = new Map<string, SliceScore[]>();
  for (const score of scores) found.set(score.slice, [...(found.get(score.slice) ?? []), score]);
  return [...found].sort(([one], [other]) => one.localeCompare(other));
}
