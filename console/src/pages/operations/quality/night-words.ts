/** Nights of evals in words. Pure. */
import type { Schemas } from "../../../api/client";
import { count } from "../../../format/number";

export type Night = Schemas["EvalNight"];
export type NightSlice = Schemas["NightSlice"];
export type NightStatus = Schemas["NightStatus"];

export const AGAINST: Record<string, string> = {
  history: "its own history",
  version_before: "the version before",
};

/** When the next night is and what it asks; null: there is none. */
export function nextTold({ plan }: NightStatus): string | null {
  if (!plan?.next_at) return null;
  const asked = Object.entries(plan.slices);
  const slices = asked.reduce((sum, [, names]) => sum + names.length, 0);
  const models = asked.length === 1 ? asked[0]?.[0] : `${count(asked.length)} models`;
  return `${models ?? "no model"}, ${count(slices)} slices, ${count(slices * plan.items)} items`;
}

/** What the newest night of a model is, as far as it is. */
export function lastTold(last: Schemas["ModelNight"]): string {
  if (last.decision !== null) return last.reason ?? "";
  return `${last.status}, ${count(last.answered)} of ${count(last.items)} items answered`;
}

/** The slices that failed, else those that decided nothing. */
export const notable = (night: Night): NightSlice[] => {
  const failed = night.slices.filter((slice) => slice.decision === "fail");
  return failed.length > 0 ? failed : night.slices.filter((slice) => slice.decision === "inconclusive");
};

export interface SliceNight extends NightSlice {
  night: Night;
}

/** A slice's verdicts, the oldest night first. */
export const nightsOf = (nights: Night[], slice: string): SliceNight[] =>
  nights
    .flatMap((night) =>
      night.slices.filter((each) => each.slice === slice).map((each) => ({ ...each, night })),
    )
    .reverse();
