import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { badgeOf, troublesOf } from "./troubles";

type Replica = Schemas["LiveReplica"];

function replica(id: string, part: Partial<Replica> = {}): Replica {
  return {
    id,
    usable: true,
    weight: 1,
    draining: false,
    health: "healthy",
    detail: "",
    breaker: "closed",
    breaker_reason: "",
    ...part,
  } as Replica;
}

function fleet(...replicas: Replica[]): Schemas["LiveFleet"] {
  return {
    pools: [{ name: "chat", queued: 0, speculation: "", replicas }],
  } as unknown as Schemas["LiveFleet"];
}

const DEAD = { usable: false, health: "unhealthy", detail: "connection refused" };

test("a pool whose replicas are all dead serves nothing, and the reason is said", () => {
  const [trouble] = troublesOf(fleet(replica("a", DEAD), replica("b", DEAD)), [], undefined);
  expect(trouble).toEqual({
    tone: "bad",
    text: "Pool chat serves nothing: 0 of 2 replicas are usable (a: connection refused).",
    place: "/operations/fleet",
  });
});

test("one dead replica of two is a warning, and what is drained is not dead", () => {
  expect(troublesOf(fleet(replica("a"), replica("b", DEAD)), [], undefined)[0]?.tone).toBe("warn");
  expect(troublesOf(fleet(replica("a"), replica("b", { ...DEAD, weight: 0 })), [], undefined)).toEqual([]);
  expect(troublesOf(fleet(replica("b", { weight: 0, usable: false })), [], undefined)[0]?.text).toContain(
    "drained",
  );
});

test("budgets that burn and failures of now are said, few failures are not", () => {
  const burning = { tier: "chat", length: "short", burning: [{ long: "1h", short: "5m", threshold: 14.4 }] };
  const figures = (failed: number) => ({ requests: 458, failed, shed: 39 }) as Schemas["ServingFigures"];
  const found = troublesOf(undefined, [burning as unknown as Schemas["ObjectiveStanding"]], figures(39));
  expect(found.map((each) => each.place)).toEqual(["/operations/slo", "/operations/requests"]);
  expect(found[1]?.text).toBe("39 of 458 requests (8.5 %) failed in the last five minutes, 39 of them shed.");
  expect(troublesOf(undefined, [], figures(4))).toEqual([]);
});

test("a budget that burns names the most frequent kind of its bad requests once they are known", () => {
  const burning = { tier: "chat", length: "short", burning: [{ long: "1h", short: "5m", threshold: 14.4 }] };
  const burnt = {
    organization: "Acme",
    model: "small",
    pool: "chat",
    what: "engine_unavailable",
    requests: 40,
  };
  const [trouble] = troublesOf(undefined, [burning as unknown as Schemas["ObjectiveStanding"]], undefined, [
    {
      tier: "chat",
      length: "short",
      looked_at: 50,
      burnt: [burnt],
    } as unknown as Schemas["BurningObjective"],
  ]);
  expect(trouble?.text).toMatch(
    /\(40 of 50\): engine unavailable, model small, pool chat, organization Acme\.$/,
  );
  expect(trouble?.explained).toBe("/operations/diagnosis");
});

test("the navigation's mark is of the worst of a page", () => {
  const found = troublesOf(fleet(replica("a", DEAD), replica("b", DEAD)), [], undefined);
  expect(badgeOf(found, "/operations/fleet")).toEqual({ tone: "bad", many: 1 });
  expect(badgeOf(found, "/operations/slo")).toBeUndefined();
});
