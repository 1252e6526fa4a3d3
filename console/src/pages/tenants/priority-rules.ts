/** Which class and which shares a request has: the rule of the gateway's `limits/priorities.py`. */
import type { Schemas } from "../../api/client";

export type PriorityRule = Schemas["Priority"];
export type ServiceClass = Schemas["ServiceClass"];

/** The highest first: what goes before what. */
export const CLASSES = ["interactive", "standard", "offline"] as const satisfies ServiceClass[];
export const USUAL_SHARE = 100;
export const MOST_SHARE = 10_000;

export interface EffectivePriority {
  serviceClass: ServiceClass;
  /** The rule that decides the class; null where none says anything. */
  classFrom: PriorityRule | null;
  /** The organization's, among organizations. */
  share: number;
  /** The project's, among those of its organization. */
  projectShare: number;
}

/** Of a level, the tier's rule goes before that for all tiers; of the levels, the lowest class wins. */
export function effectivePriority(rules: PriorityRule[], tier: Schemas["Tier"]): EffectivePriority {
  const own = rules
    .filter((rule) => rule.tier === null || rule.tier === tier)
    .sort((one, other) => Number(one.tier !== null) - Number(other.tier !== null));
  const saysClass = new Map<PriorityRule["level"], PriorityRule>();
  const shares = new Map<PriorityRule["level"], number>();
  for (const rule of own) {
    if (rule.service_class !== null) saysClass.set(rule.level, rule);
    if (rule.share !== null) shares.set(rule.level, rule.share);
  }
  let serviceClass: ServiceClass = saysClass.get("organization")?.service_class ?? "standard";
  let classFrom: PriorityRule | null = saysClass.get("organization") ?? null;
  for (const level of ["project", "key"] as const) {
    const rule = saysClass.get(level);
    if (rule?.service_class && CLASSES.indexOf(rule.service_class) > CLASSES.indexOf(serviceClass)) {
      serviceClass = rule.service_class;
      classFrom = rule;
    }
  }
  return {
    serviceClass,
    classFrom,
    share: shares.get("organization") ?? USUAL_SHARE,
    projectShare: shares.get("project") ?? USUAL_SHARE,
  };
}

/** A share as it was typed. Empty: null, as the level above. undefined: it is none. */
export function shareOf(text: string): number | null | undefined {
  const typed = text.trim();
  if (typed === "") return null;
  const value = /^\d{1,5}$/.test(typed) ? Number(typed) : 0;
  return value >= 1 && value <= MOST_SHARE ? value : undefined;
}
