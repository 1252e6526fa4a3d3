/** Lists the deployment's current problems, worst first: dead engines, budgets that burn, requests that fail. */
import type { Schemas } from "../api/client";
import { count, percent } from "../format/number";

export type Place =
  | "/operations/fleet"
  | "/operations/slo"
  | "/operations/requests"
  | "/operations/diagnosis";

export const PLACES: Record<Place, string> = {
  "/operations/fleet": "Open the fleet",
  "/operations/slo": "Open the objectives",
  "/operations/requests": "Open the requests",
  "/operations/diagnosis": "Find the cause",
};

export interface Trouble {
  tone: "bad" | "warn";
  /** One sentence. */
  text: string;
  /** The page with details. */
  place: Place;
  /** A second page, which explains it. */
  explained?: Place;
}

/** Failed requests of the last minutes below this number or share are not listed. */
const LEAST_FAILED = 5;
const LEAST_FAILED_SHARE = 0.01;

export function troublesOf(
  fleet: Schemas["LiveFleet"] | undefined,
  objectives: Schemas["ObjectiveStanding"][],
  recent: Schemas["ServingFigures"] | undefined,
  explanations: Schemas["BurningObjective"][] = [],
): Trouble[] {
  const found = [
    ...(fleet?.pools ?? []).flatMap(poolTrouble),
    ...objectives.flatMap((each) => budgetTrouble(each, explanations)),
    ...failureTrouble(recent),
  ];
  return found.sort((one, other) => Number(one.tone === "warn") - Number(other.tone === "warn"));
}

/** What was looked at where nothing is listed. */
export function allWell(fleet: Schemas["LiveFleet"], recent: Schemas["ServingFigures"] | undefined): string {
  const replicas = fleet.pools.flatMap((pool) => pool.replicas);
  const usable = replicas.filter((each) => each.usable).length;
  const failed = recent?.failed ?? 0;
  return [
    replicas.length === 0
      ? "The fleet has no engines."
      : `${count(usable)} of ${count(replicas.length)} engines can serve.`,
    "No error budget is burning too fast.",
    `${failed === 0 ? "No request" : failed === 1 ? "1 request" : `${count(failed)} requests`} failed in the last five minutes.`,
  ].join(" ");
}

function poolTrouble(pool: Schemas["LivePool"]): Trouble[] {
  const meant = pool.replicas.filter((each) => each.weight > 0 && !each.draining);
  const dead = meant.filter((each) => !each.usable);
  if (pool.replicas.length > 0 && meant.length === 0)
    return [
      {
        tone: "warn",
        text: `Pool ${pool.name} is drained: it serves no requests.`,
        place: "/operations/fleet",
      },
    ];
  const [first] = dead;
  if (!first) return [];
  const why = first.breaker !== "closed" ? first.breaker_reason : first.detail || first.health;
  const usable = meant.length - dead.length;
  return [
    {
      tone: usable === 0 ? "bad" : "warn",
      text:
        usable === 0
          ? `Pool ${pool.name} serves nothing: 0 of ${meant.length} replicas are usable (${first.id}: ${why}).`
          : `Pool ${pool.name}: ${usable} of ${meant.length} replicas are usable (${first.id}: ${why}).`,
      place: "/operations/fleet",
    },
  ];
}

function budgetTrouble(
  objective: Schemas["ObjectiveStanding"],
  explanations: Schemas["BurningObjective"][],
): Trouble[] {
  const [fastest] = objective.burning;
  if (!fastest) return [];
  const { tier, length } = objective;
  const explained = explanations.find((each) => each.tier === tier && each.length === length);
  const text = `The error budget for ${length} ${tier} prompts is burning at more than ${fastest.threshold} times the allowed rate over the last ${fastest.long} and the last ${fastest.short}.`;
  return [
    {
      tone: "bad",
      text: explained ? `${text}${mostOf(explained)}` : text,
      place: "/operations/slo",
      explained: "/operations/diagnosis",
    },
  ];
}

/** The largest group of the bad requests, as a sentence. */
function mostOf(burning: Schemas["BurningObjective"]): string {
  const [most] = burning.burnt;
  if (!most) return "";
  const model = most.model && `, model ${most.model}`;
  const pool = most.pool ? `, pool ${most.pool}` : "";
  return ` Most frequent among the bad requests (${count(most.requests)} of ${count(burning.looked_at)}): ${most.what.replaceAll("_", " ")}${model}${pool}, organization ${most.organization.replace(/ \([0-9a-f-]{36}\)$/, "")}.`;
}

function failureTrouble(recent: Schemas["ServingFigures"] | undefined): Trouble[] {
  if (!recent || recent.failed < LEAST_FAILED || recent.failed < LEAST_FAILED_SHARE * recent.requests)
    return [];
  const shed = recent.shed > 0 ? `, ${count(recent.shed)} of them shed` : "";
  return [
    {
      tone: "bad",
      text: `${count(recent.failed)} of ${count(recent.requests)} requests (${percent(recent.failed / recent.requests)}) failed in the last five minutes${shed}.`,
      place: "/operations/requests",
    },
  ];
}

/** The tone of a page's worst problem and the number of its problems; undefined: none. */
export function badgeOf(
  troubles: Trouble[],
  place: string,
): { tone: Trouble["tone"]; many: number } | undefined {
  const there = troubles.filter((each) => each.place === place);
  const [worst] = there;
  return worst && { tone: worst.tone, many: there.length };
}
