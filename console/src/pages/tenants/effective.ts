/** What holds for a request: of all rules that concern it the strictest, counter by counter. */
import type { Schemas } from "../../api/client";
import { COUNTERS, type Counter } from "./limit-names";

export type LimitRule = Schemas["LimitRule"];

export interface Effective {
  counter: Counter;
  limit: number;
  /** The rule that says so. */
  from: LimitRule;
}

/** rules: of the key, its project and its organization. tier: of the request. Counters that nothing limits are left out. */
export function effectiveLimits(rules: LimitRule[], tier: Schemas["Tier"]): Effective[] {
  const found: Effective[] = [];
  for (const { name } of COUNTERS) {
    let strictest: Effective | null = null;
    for (const rule of rules) {
      if (rule.tier !== null && rule.tier !== tier) continue;
      const limit = rule.limits[name];
      if (limit == null || (strictest !== null && strictest.limit <= limit)) continue;
      strictest = { counter: name, limit, from: rule };
    }
    if (strictest !== null) found.push(strictest);
  }
  return found;
}
