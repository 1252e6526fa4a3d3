import { describe, expect, it } from "vitest";
import type { Schemas } from "../../../api/client";
import { adviceOn, apartTold, byEngine, type Window } from "./drift";
import { type EvalItem, movedItems, points } from "./eval-words";
import { rangeOf } from "./interval-chart";
import { type Night, type NightSlice, nextTold, nightsOf, notable } from "./night-words";
import { leastOf, shareOf, stagesOf, wholeOf } from "./release-input";
import {
  deciding,
  latenciesOf,
  leftOut,
  nearest,
  placesOf,
  progressOf,
  type Release,
  stageName,
  stageOfCopies,
  stepsByHand,
  strongest,
  type Test,
  timeLeft,
  towards,
} from "./release-words";
import { preferenceTold } from "./review-words";

const nightOf = (
  day: string,
  decision: Night["decision"],
  slices: [string, NightSlice["decision"]][],
): Night => ({
  run_id: day,
  model: "chat",
  pool: "one",
  night: day,
  judged_at: `${day}T02:10:00Z`,
  decision,
  reason: "why",
  version_since: null,
  changed: [],
  rollback_release_id: null,
  slices: slices.map(([slice, found]) => ({
    slice,
    decision: found,
    reason: "r",
    against: "history",
    nights: 3,
    items: 120,
    clusters: 9,
    difference: -0.1,
    lower: -0.2,
    upper: -0.01,
    score: 0.8,
  })),
});

describe("nights", () => {
  const [older, newer] = [
    nightOf("2026-11-27", "inconclusive", [
      ["json", "inconclusive"],
      ["lists", "pass"],
    ]),
    nightOf("2026-11-28", "fail", [
      ["json", "fail"],
      ["lists", "inconclusive"],
    ]),
  ];
  it("names what failed, else what decided nothing", () => {
    expect(notable(newer).map((each) => each.slice)).toEqual(["json"]);
    expect(notable(older).map((each) => each.slice)).toEqual(["json"]);
  });
  it("reads a slice’s nights from the oldest on", () =>
    expect(nightsOf([newer, older], "json").map((each) => each.decision)).toEqual(["inconclusive", "fail"]));
  it("says when the next one is and how much it asks", () => {
    const plan = {
      reported_at: "2026-11-28T09:00:00Z",
      schedule: "0 2 * * *",
      previous_at: null,
      next_at: "2026-11-29T02:00:00Z",
      items: 40,
      slices: { chat: ["json", "lists"] },
      automatic_rollback: false,
    };
    expect(nextTold({ plan, last: [], missing: [] })).toBe("chat, 2 slices, 80 items");
    expect(nextTold({ plan: { ...plan, next_at: null }, last: [], missing: [] })).toBeNull();
  });
});

describe("a release’s form", () => {
  it("reads stages as shares", () => {
    expect(stagesOf("shadow, 1, 5, 25, 100")).toEqual([0, 0.01, 0.05, 0.25, 1]);
    expect(stagesOf("25% 50% 100%")).toEqual([0.25, 0.5, 1]);
  });
  it.each([
    ["5, 1, 100", /above the one before/],
    ["shadow, 100", /At least one stage/],
    ["1, 60, 100", /at most 50/],
    ["1, 5", /last stage must be 100/],
    ["1, all", /percentages/],
  ])("says what is wrong with %s", (text, said) => expect(stagesOf(text)).toMatch(said));
  it("wants a least number for each stage between, or none", () => {
    expect(leastOf("", [0, 0.01, 1])).toBeNull();
    expect(leastOf("200, 500", [0, 0.01, 0.05, 1])).toEqual([200, 500]);
    expect(leastOf("200", [0, 0.01, 0.05, 1])).toMatch(/2, not 1/);
    expect(leastOf("0", [0, 0.01, 1])).toMatch(/at least 1/);
  });
  it("reads the rest", () => {
    expect(shareOf("10", 0, 0.5)).toBe(0.1);
    expect(shareOf("", 0, 0.5)).toBeUndefined();
    expect(shareOf("60", 0, 0.5)).toMatch(/0 to 50/);
    expect(wholeOf("1.5", 1, 10)).toMatch(/whole number/);
  });
});

const RELEASE = {
  model: "m",
  candidate_pool: "new",
  baseline_pool: "old",
  state: "running",
  stage: 1,
  stages: [0, 0.25, 0.5, 1],
  share: 0.25,
} as unknown as Release;

describe("a release", () => {
  it("names its stages", () => {
    expect([0, 0.001, 0.125, 1].map(stageName)).toEqual(["shadow", "0.1 %", "12.5 %", "100 %"]);
  });
  it("says in which stage requests were copied", () => {
    expect([0, 0.25, null].map(stageOfCopies)).toEqual([", stage shadow", ", stage 25 %", ""]);
  });
  it("knows where each stage stands", () => {
    expect(placesOf("running", 1, 3)).toEqual(["done", "now", "ahead"]);
    expect(placesOf("waiting", 0, 2)).toEqual(["ahead", "ahead"]);
    expect(placesOf("rolled_back", 1, 3)).toEqual(["done", "stopped", "unreached"]);
    expect(placesOf("promoted", 2, 3)).toEqual(["done", "done", "done"]);
  });
  it("counts copies in the shadow stage, and says how long the rest takes at this pace", () => {
    const shadow = {
      ...RELEASE,
      state: "running",
      stage: 0,
      stages: [0, 0.5, 1],
      shadow_least: 100,
      waits_for: "missing: 75 more copies of requests that both sides answered",
    } as Release;
    const progress = progressOf(shadow);
    expect(progress).toEqual([{ what: "copies", units: 25, least: 100 }]);
    expect(timeLeft(progress, 60)).toBe(180);
    expect(timeLeft([{ what: "copies", units: 0, least: 100 }], 60)).toBeNull();
    expect(timeLeft([{ what: "copies", units: 100, least: 100 }], 60)).toBeNull();
    expect(progressOf({ ...shadow, state: "rolled_back" })).toEqual([]);
  });
  it("puts both pools' milliseconds side by side, and nothing where neither answered", () => {
    const pool = (p50: number, p99: number) =>
      ({ ttft_ms: { p50, p99 }, itl_max_ms: null }) as unknown as Parameters<typeof latenciesOf>[0];
    const rows = latenciesOf(pool(60, 90), pool(50, 100));
    expect(rows.map((row) => [row.candidate, row.baseline])).toEqual([
      [60, 50],
      [90, 100],
      [null, null],
      [null, null],
    ]);
    expect(latenciesOf(undefined, undefined)).toEqual([]);
  });
  it.each([
    ["waiting", ["roll_back"]],
    ["running", ["promote", "hold", "roll_back"]],
    ["held", ["promote", "resume", "roll_back"]],
    ["promoted", ["roll_back"]],
    ["rolled_back", []],
  ] as const)("that is %s may be %j", (state, actions) => {
    expect(stepsByHand({ ...RELEASE, state }).map((step) => step.action)).toEqual(actions);
  });
  it("says what the last promotion does", () => {
    expect(stepsByHand({ ...RELEASE, stage: 2 })[0]?.says).toMatch(/new becomes the pool of m at once/);
    expect(stepsByHand(RELEASE)[0]?.label).toBe("Promote to 50 %");
  });
  it("draws the strongest harm and the weakest proof of each metric", () => {
    const test = (kind: "harm" | "proof", log10_e: (number | null)[]): Schemas["EvidenceTest"] => ({
      kind,
      metric: "ttft",
      test: String(log10_e),
      needed_log10: 2,
      candidate: [1, 1],
      control: [1, 1],
      log10_e,
    });
    const harms = [test("harm", [null, 1]), test("harm", [-3, 2])];
    expect(strongest(harms, "harm", 2)).toEqual([{ metric: "ttft", values: [0, 1] }]);
    const proofs = [test("proof", [1, 2]), test("proof", [2, 1])];
    expect(strongest(proofs, "proof", 2)).toEqual([{ metric: "ttft", values: [0.5, 0.5] }]);
    expect(towards(1, null)).toBeNull();
  });
  it("draws the harm that decides among the first, however many there are", () => {
    const lines = ["a", "b", "c", "d", "e", "ttft"].map((metric) => ({
      metric,
      values: [null, metric === "ttft" ? 1.1 : 0],
    })) as ReturnType<typeof strongest>;
    expect(nearest(lines, "harm")[0]?.metric).toBe("ttft");
    expect(nearest(lines, "proof").at(-1)?.metric).toBe("ttft");
    expect(nearest([{ metric: "ttft", values: [null] }] as ReturnType<typeof strongest>, "harm")).toEqual([]);
  });
});

describe("a release of which one organization sends nearly all traffic", () => {
  const told = "waits for 12 more; 340 sessions beyond one organization's 50% were left out";
  it("is told by what its newest look left out", () => {
    expect(leftOut({ waits_for: told, reason: "" })).toEqual({ sessions: 340, share: "50%" });
    expect(leftOut({ waits_for: "", reason: told })).toEqual({ sessions: 340, share: "50%" });
  });
  it("is no more told of when a newer look left nothing out", () =>
    expect(leftOut({ waits_for: "waits for 12 more", reason: told })).toBeNull());
});

describe("a comparison", () => {
  const item = (seed: number, score: number) => ({ slice: "facts", seed, score, cluster: "c" }) as EvalItem;
  it("shows what both answered with other scores, losses first", () => {
    const moved = movedItems(
      [item(1, 1), item(2, 1), item(3, 0), item(4, 1)],
      [item(1, 1), item(2, 0), item(3, 1)],
    );
    expect(moved.map((each) => [each.seed, each.difference])).toEqual([
      [2, -1],
      [3, 1],
    ]);
  });
  it("tells points with their sign", () => {
    expect([0.0123, -0.02, 0].map((share) => points(share))).toEqual([
      "+1.23 points",
      "−2.00 points",
      "0.00 points",
    ]);
  });
  it("draws intervals and bounds within the domain", () => {
    const point = { key: "1", at: "", value: 0.9, lower: 0.8, upper: 0.99, series: 1, told: "" };
    const [low, high] = rangeOf([point], [0.7], [0, 1]);
    expect(low).toBeLessThan(0.7);
    expect(low).toBeGreaterThan(0.6);
    expect(high).toBe(1);
  });
});

describe("drift", () => {
  const now = new Date("2026-11-23T12:00:00Z");
  const window = (prompt_drift: number, fields: Partial<Window> = {}): Window => ({
    replica_id: "a",
    window_from: "2026-11-23T11:50:00Z",
    window_until: "2026-11-23T11:55:00Z",
    engine_prompt_tokens: 10,
    engine_completion_tokens: 5,
    ledger_prompt_tokens_min: 10,
    ledger_prompt_tokens_max: 10,
    ledger_completion_tokens_min: 5,
    ledger_completion_tokens_max: 5,
    uncertain_attempts: 0,
    prompt_drift,
    completion_drift: 0,
    checked_at: "2026-11-23T11:56:00Z",
    ...fields,
  });
  it("does not let what is missing make up for what is too much", () => {
    const [worst, other] = byEngine([window(0, { replica_id: "b" }), window(30), window(-30)]);
    expect([worst?.replica_id, worst?.drifting, worst && apartTold(worst.prompt)]).toEqual([
      "a",
      2,
      "+30 −30",
    ]);
    expect(other && apartTold(other.prompt)).toBe("0");
  });
  it("says what to do", () => {
    expect(adviceOn(window(0), now)).toBe("agrees");
    expect(adviceOn(window(-1), now)).toMatch(/counted fewer/);
    expect(adviceOn(window(1, { uncertain_attempts: 2 }), now)).toMatch(/inexact token counts/);
    expect(adviceOn(window(1), now)).toMatch(/rows to send/);
    expect(adviceOn(window(1, { window_until: "2026-11-21T00:00:00Z" }), now)).toMatch(/directly/);
  });
});

describe("a vote", () => {
  it("tells whose answer was preferred", () => {
    const vote = { review_id: "1", choice: "left", candidate: "right" } as const;
    expect(preferenceTold(vote)).toMatch(/right answer.*you preferred the baseline/);
    expect(preferenceTold({ ...vote, candidate: "left" })).toMatch(/preferred the candidate/);
  });
});

describe("the test that a release’s page opens on", () => {
  const test = (kind: Test["kind"], metric: string, log10e: number, counted = 0, name = "t"): Test => ({
    kind,
    metric,
    test: name,
    needed_log10: 2,
    candidate: [counted],
    control: [counted],
    log10_e: [log10e],
  });
  const running = { ...RELEASE, state: "running", stage: 1 } as Release;
  const last = { ...RELEASE, state: "running", stage: 2 } as Release;
  const found = (tests: Test[], release: Release) => {
    const one = deciding(tests, release);
    return one && `${one.kind} ${one.metric}`;
  };
  it("is the harm nearest to its limit, not the one that has counted most", () => {
    const tests = [test("harm", "itl", -1, 90), test("harm", "errors", 0.4, 3), test("proof", "ttft", 1.5)];
    expect(found(tests, running)).toBe("harm errors");
  });
  it("is the one that stopped it", () => {
    const tests = [test("harm", "ttft", 1.2), test("harm", "errors", 2.3), test("proof", "itl", 1.9)];
    expect(found(tests, { ...last, state: "rolled_back" })).toBe("harm errors");
    expect(found(tests, last)).toBe("harm errors");
  });
  it("is before all traffic the weakest proof, where that is nearer than any harm", () => {
    const tests = [test("harm", "errors", 0.2), test("proof", "ttft", 1.1), test("proof", "itl", 1.8)];
    expect(found(tests, last)).toBe("proof ttft");
    expect(found(tests, running)).toBe("harm errors");
    expect(found(tests, { ...last, state: "promoted" })).toBe("proof ttft");
  });
  it("is the harm that has counted most while nothing speaks against it", () => {
    const all = test("harm", "ttft", -2, 100, "first requests");
    expect(found([all, test("harm", "itl", -1, 5), test("harm", "errors", 0, 9)], running)).toBe(
      "harm errors",
    );
    expect(found([], running)).toBeUndefined();
  });
});
