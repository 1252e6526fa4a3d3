/** A release in words and numbers. Pure. */
import type { Schemas } from "../../../api/client";

export type Release = Schemas["ReleaseDetail"];
export type ReleaseState = Schemas["ReleaseSummary"]["state"];
export type Evidence = Schemas["ReleaseEvidence"];
export type Test = Schemas["EvidenceTest"];

/** The judge's last words, as the API passes them on. */
export interface Verdict {
  decision: "roll_back" | "promote" | "wait" | "inconclusive";
  stage: number;
  candidate_units: number;
  control_units: number;
  missing: string[];
  reason: string;
}

interface Policy {
  least_units: number[];
  most_units: number;
  quantiles: number[];
}

interface Thresholds {
  ttft_ms: number[];
  itl_ms: number[];
}

export const verdictOf = (release: Release) => release.verdict as unknown as Verdict | null;
export const policyOf = (release: Release) => release.policy as unknown as Policy | null;
export const thresholdsOf = (release: Release) => release.thresholds as unknown as Thresholds | null;

export const hasEnded = (state: ReleaseState) => state === "promoted" || state === "rolled_back";

/** What its newest look left out because one organization sends nearly all of the traffic; null: nothing. sessions: how
 * many; share: the most that one organization may have, such as "50%". */
export function leftOut(
  release: Pick<Release, "waits_for" | "reason">,
): { sessions: number; share: string } | null {
  const told = release.waits_for || release.reason;
  const [, sessions, share] = /(\d+) sessions beyond one organization's (\d+%)/.exec(told) ?? [];
  return sessions === undefined || share === undefined ? null : { sessions: Number(sessions), share };
}

/** 0.125 → "12.5 %"; 0: the shadow stage. */
export function stageName(share: number): string {
  return share === 0 ? "shadow" : `${Number((share * 100).toPrecision(4))} %`;
}

/** The stage in which requests were copied, as it stands behind a release; copies of older versions do not say. */
export const stageOfCopies = (share: number | null) => (share === null ? "" : `, stage ${stageName(share)}`);

/** What a share of the sessions is called where it is no stage. */
export const sharePercent = (share: number) => `${Number((share * 100).toPrecision(4))} %`;

export type StagePlace = "done" | "now" | "stopped" | "ahead" | "unreached";

/** Where each stage stands; the last is all traffic. */
export function placesOf(state: ReleaseState, stage: number, stages: number): StagePlace[] {
  return Array.from({ length: stages }, (_, at) => {
    if (state === "promoted") return "done";
    if (at < stage) return "done";
    if (at > stage) return state === "rolled_back" ? "unreached" : "ahead";
    if (state === "waiting") return "ahead";
    return state === "rolled_back" ? "stopped" : "now";
  });
}

export interface Progress {
  what: "candidate" | "control" | "copies";
  units: number;
  least: number;
}

/** What the controller says in the shadow stage. */
const COPIES = /(\d+) more copies of requests/;

/** Sessions of this stage beside the least it needs, or copies that both sides answered; empty before the first look and
 * at the end. */
export function progressOf(release: Release): Progress[] {
  if (hasEnded(release.state)) return [];
  if (release.stages[release.stage] === 0) {
    const lacking = COPIES.exec(release.waits_for || release.reason)?.[1];
    const least = release.shadow_least;
    return lacking === undefined
      ? []
      : [{ what: "copies", units: Math.max(0, least - Number(lacking)), least }];
  }
  const verdict = verdictOf(release);
  const policy = policyOf(release);
  if (verdict === null || policy === null) return [];
  const serving = release.stage - (release.stages[0] === 0 ? 1 : 0);
  const least = policy.least_units[serving];
  if (least === undefined) return [];
  const here = verdict.stage === serving;
  return [
    { what: "candidate", units: here ? verdict.candidate_units : 0, least },
    { what: "control", units: here ? verdict.control_units : 0, least },
  ];
}

/** Seconds until the stage has all that it needs, at its pace so far. null: nothing is missing, or nothing came. */
export function timeLeft(progress: Progress[], elapsedS: number): number | null {
  const left = progress
    .filter((each) => each.units < each.least)
    .map((each) => ((each.least - each.units) * elapsedS) / each.units);
  const most = Math.max(0, ...left);
  return most > 0 && Number.isFinite(most) ? most : null;
}

export interface LatencyRow {
  name: string;
  candidate: number | null;
  baseline: number | null;
}

/** First token and longest gap of two pools, at p50 and p99; empty where neither answered. */
export function latenciesOf(
  candidate: Schemas["ServingFigures"] | undefined,
  baseline: Schemas["ServingFigures"] | undefined,
): LatencyRow[] {
  if (!candidate?.ttft_ms && !baseline?.ttft_ms) return [];
  return (["ttft_ms", "itl_max_ms"] as const).flatMap((measure) =>
    (["p50", "p99"] as const).map((quantile) => ({
      name: `${measure === "ttft_ms" ? "Time to first token" : "Longest gap"}, ${quantile}`,
      candidate: candidate?.[measure]?.[quantile] ?? null,
      baseline: baseline?.[measure]?.[quantile] ?? null,
    })),
  );
}

export const METRICS: Record<string, string> = {
  ttft: "Time to first token",
  itl: "Gaps between tokens",
  errors: "Failures",
  goodput: "Missed objectives",
  reviews: "Reviewers’ votes",
  shadow: "Copies that failed",
  slices: "Eval slices",
};

export const metricName = (metric: string) => METRICS[metric] ?? metric;

/** How far evidence is on its way to deciding, 0 to 1 and beyond: the e-value grows by factors, so its logarithm counts. */
export function towards(log10e: number | null | undefined, needed: number | null | undefined): number | null {
  if (log10e == null || needed == null || needed <= 0) return null;
  return Math.max(0, log10e / needed);
}

/** At each look the strongest test of each metric, as a share of what decides. */
export function strongest(tests: Test[], kind: Test["kind"], looks: number) {
  const metrics = [...new Set(tests.filter((test) => test.kind === kind).map((test) => test.metric))];
  return metrics.map((metric) => {
    const own = tests.filter((test) => test.kind === kind && test.metric === metric);
    const values = Array.from({ length: looks }, (_, at) => {
      const found = own.flatMap((test) => towards(test.log10_e[at], test.needed_log10) ?? []);
      if (found.length === 0) return null;
      // one harm is enough to stop it, but every proof has to be there
      return kind === "harm" ? Math.max(...found) : Math.min(...found);
    });
    return { metric, values };
  });
}

/** Lines with any value, the most important first, for a chart of few lines: the harm nearest to its limit, or the proof
 * furthest from it. */
export function nearest(lines: ReturnType<typeof strongest>, kind: Test["kind"]) {
  const most = (line: (typeof lines)[number]) => line.values.findLast((value) => value !== null) ?? 0;
  const sign = kind === "harm" ? -1 : 1;
  return lines
    .filter((line) => line.values.some((value) => value !== null))
    .sort((one, other) => sign * (most(one) - most(other)));
}

/** The test that decides now: the harm that stopped it, else the one nearest to its limit; of proofs, which count before
 * all traffic only, the weakest, for all must be there. Where nothing speaks yet, the harm that has counted most. */
export function deciding(
  tests: Test[],
  release: Pick<Release, "state" | "stage" | "stages">,
): Test | undefined {
  const part = (test: Test) => towards(test.log10_e.at(-1), test.needed_log10) ?? 0;
  const nearest = (kind: Test["kind"]) =>
    tests.filter((test) => test.kind === kind).sort((one, other) => part(other) - part(one));
  const harm = nearest("harm")[0];
  const isLast = release.stage + 2 >= release.stages.length;
  const proof = isLast ? nearest("proof").at(-1) : undefined;
  if (release.state === "promoted") return proof ?? harm;
  if (harm && part(harm) > 0 && (release.state === "rolled_back" || part(harm) >= 1)) return harm;
  if (proof && part(proof) > (harm ? part(harm) : 0)) return proof;
  if (harm && part(harm) > 0) return harm;
  const counted = (test: Test) => (test.candidate.at(-1) ?? 0) + (test.control.at(-1) ?? 0);
  // all sessions count in that of first requests, which tells nothing
  const telling = tests.filter((test) => test.kind === "harm" && test.test !== "first requests");
  return telling.sort((one, other) => counted(other) - counted(one))[0] ?? tests[0];
}

export const checkOf = (test: Test) => `${test.kind}.${test.metric}.${test.test}`;

export interface Step {
  action: "promote" | "hold" | "resume" | "roll_back";
  label: string;
  title: string;
  says: string;
}

/** What may be done by hand now, and what happens then. */
export function stepsByHand(release: Release): Step[] {
  const { model, candidate_pool: candidate, baseline_pool: baseline } = release;
  if (release.state === "promoted")
    return [
      {
        action: "roll_back",
        label: "Roll back",
        title: `Undo the promotion of ${candidate}?`,
        says: `${baseline} serves all of ${model} again within a second, and ${candidate} finishes its running requests. This is refused if the model has changed since.`,
      },
    ];
  if (hasEnded(release.state)) return [];
  const found: Step[] = [];
  if (release.state === "running" || release.state === "held") {
    const next = release.stages[release.stage + 1] ?? 1;
    const all = release.stage + 2 === release.stages.length;
    found.push({
      action: "promote",
      label: all ? "Promote to all traffic" : `Promote to ${stageName(next)}`,
      title: all ? `Give all of ${model} to ${candidate}?` : `Promote the release to ${stageName(next)}?`,
      says: all
        ? `Regardless of the evidence, ${candidate} becomes the pool of ${model} at once, and the release ends. ${baseline} stays, without requests for ${model}.`
        : `Regardless of the evidence, ${stageName(next)} of the sessions go to ${candidate}, and as many to the control arm. The tests go on, and still roll the release back if the candidate is worse.`,
    });
  }
  if (release.state === "running")
    found.push({
      action: "hold",
      label: "Hold",
      title: "Hold the release in this stage?",
      says: `${sharePercent(release.share)} of the sessions stay with ${candidate}. The release does not advance until you resume or promote it. The tests go on, and still roll it back if the candidate is worse.`,
    });
  if (release.state === "held")
    found.push({
      action: "resume",
      label: "Resume",
      title: "Let the release advance by itself?",
      says: "The release advances as soon as its evidence allows it.",
    });
  found.push({
    action: "roll_back",
    label: "Roll back",
    title: `Roll back ${candidate}?`,
    says:
      release.state === "waiting"
        ? `The release has not begun, and ${candidate} got no requests. The release ends, and you may start another.`
        : `Within a second, ${candidate} gets no more sessions of ${model} and ${baseline} serves them all; ${candidate} finishes its running requests. The release ends and cannot be resumed.`,
  });
  return found;
}
