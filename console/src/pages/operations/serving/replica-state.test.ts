import { expect, test } from "vitest";
import { bucketOf, lengthMs } from "./choices";
import { type LiveReplica, stateOf } from "./replica-state";

const HEALTHY: LiveReplica = {
  id: "gpu-0",
  url: "http://10.0.0.5:30000",
  driver: "sglang",
  health: "healthy",
  detail: "",
  breaker: "closed",
  breaker_reason: "",
  draining: false,
  usable: true,
  weight: 1,
  leases: 3,
  max_concurrency: 32,
  limited_by: "the engine reports it",
  running: 3,
  waiting: 0,
  prefill_tokens: 0,
  prefix_blocks: 12,
  headroom_tokens: null,
  prefill_tokens_per_s: 0,
  hardware: "H100",
};

test("a replica that serves is healthy", () => {
  expect(stateOf(HEALTHY)).toEqual({ word: "healthy", tone: "good", why: "" });
});

test("one without weight drains while something runs on it, and then is drained", () => {
  expect(stateOf({ ...HEALTHY, weight: 0 })).toMatchObject({
    word: "draining",
    why: "Running requests: 3. Its weight is 0.",
  });
  expect(stateOf({ ...HEALTHY, weight: 0, leases: 0 }).word).toBe("drained");
  expect(stateOf({ ...HEALTHY, draining: true }).why).toContain("slipstream fleet drain");
});

test("a breaker goes before health, and says why", () => {
  const broken = {
    ...HEALTHY,
    breaker: "open",
    breaker_reason: "3 of 4 requests failed",
    health: "unhealthy",
  };
  expect(stateOf(broken)).toEqual({ word: "breaker open", tone: "bad", why: "3 of 4 requests failed" });
  expect(stateOf({ ...broken, breaker: "half_open" }).word).toBe("breaker half-open");
  expect(stateOf({ ...HEALTHY, health: "suspect", detail: "timed out" })).toMatchObject({
    tone: "bad",
    why: "timed out",
  });
});

test("periods have lengths, and parts that make a chart of some tens of points", () => {
  expect(lengthMs("15m")).toBe(900_000);
  expect(lengthMs("7d") / lengthMs("1h")).toBe(168);
  expect([bucketOf("1h"), bucketOf("24h"), bucketOf("28d")]).toEqual(["minute", "hour", "day"]);
});
