/** The state of an error budget in a word. */
import type { Schemas } from "../api/client";
import { percent } from "./number";

/** "42.0 %", "spent 3.8 times"; "–" for so few requests that none of them may be bad. */
export function budgetLeft(objective: Schemas["ObjectiveStanding"]): string {
  const counted = objective.windows.at(-1)?.counted ?? 0;
  const left = objective.budget_left;
  if (left === null || counted * (1 - objective.target) < 1) return "–";
  return left >= 0 ? percent(left) : `spent ${(1 - left).toFixed(1)} times`;
}
