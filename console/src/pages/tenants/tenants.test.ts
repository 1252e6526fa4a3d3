import { describe, expect, it } from "vitest";
import { differences } from "./audit-difference";
import { stillOpens } from "./earlier-secret";
import { effectiveLimits, type LimitRule } from "./effective";
import { priceTold } from "./invoice-words";
import { moments, periodBefore, periodOf } from "./periods";
import { canEnd } from "./price-end";
import { seriesOf, type Totals, totalsOf } from "./usage-series";
import { inOrder } from "./waterfall";

describe("the secret before a rotation", () => {
  const now = new Date("2026-11-23T12:00:00Z");
  it("opens until its end, and is not told of afterwards", () => {
    expect(stillOpens("2026-11-23T12:00:01Z", now)).toBe("2026-11-23T12:00:01Z");
    expect(stillOpens("2026-11-23T12:00:00Z", now)).toBeNull();
    expect(stillOpens(null, now)).toBeNull();
  });
});

describe("what a change changed", () => {
  it("names fields that differ, nested ones with dots, and no others", () => {
    expect(
      differences(
        { name: "a", limits: { rpm: 1, tpm: 2 }, models: ["x"] },
        { name: "a", limits: { rpm: 5, tpm: 2 }, models: ["x", "y"] },
      ),
    ).toEqual([
      { field: "limits.rpm", before: 1, after: 5, kind: "changed" },
      { field: "models", before: ["x"], after: ["x", "y"], kind: "changed" },
    ]);
  });
  it("tells what was made and what was removed", () => {
    expect(differences(null, { name: "a", end: null })).toEqual([
      { field: "name", before: null, after: "a", kind: "added" },
    ]);
    expect(differences({ name: "a" }, null)[0]?.kind).toBe("removed");
  });
  it("tells false and zero from nothing", () => {
    expect(differences({ disabled: false }, { disabled: true })[0]?.kind).toBe("changed");
    expect(differences({ count: 0 }, {})[0]?.kind).toBe("removed");
  });
});

const NO_LIMITS = {};
function rule(
  level: LimitRule["level"],
  tier: LimitRule["tier"],
  limits: Partial<LimitRule["limits"]>,
): LimitRule {
  return { level, tier, subject_id: "s", limits: { ...NO_LIMITS, ...limits } as LimitRule["limits"] };
}

describe("what holds of several rules", () => {
  const rules = [
    rule("organization", null, { requests_per_minute: 100, tokens_per_day: 10 }),
    rule("project", "chat", { requests_per_minute: 20 }),
    rule("project", "autocomplete", { requests_per_minute: 5 }),
    rule("key", null, { requests_per_minute: 50 }),
  ];
  it("is the strictest of those for the tier and for all", () => {
    const chat = effectiveLimits(rules, "chat");
    expect(chat.map(({ counter, limit, from }) => [counter, limit, from.level])).toEqual([
      ["requests_per_minute", 20, "project"],
      ["tokens_per_day", 10, "organization"],
    ]);
    expect(effectiveLimits(rules, "autocomplete")[0]?.limit).toBe(5);
  });
  it("takes zero for a limit", () => {
    expect(
      effectiveLimits([...rules, rule("key", "chat", { requests_per_minute: 0 })], "chat")[0]?.limit,
    ).toBe(0);
  });
});

describe("periods", () => {
  const now = new Date("2026-03-15T10:20:00Z");
  it("are whole days up to tonight, or whole hours", () => {
    expect(periodOf("7d", now)).toEqual({
      start: new Date("2026-03-09T00:00:00Z"),
      end: new Date("2026-03-16T00:00:00Z"),
      bucket: "day",
    });
    expect(periodOf("24h", now).start).toEqual(new Date("2026-03-14T11:00:00Z"));
    expect(moments(periodOf("24h", now))).toHaveLength(24);
  });
  it("are compared with as long before, a month with the same days of the one before", () => {
    const month = periodOf("month", now);
    expect(periodBefore("month", month)).toEqual({
      start: new Date("2026-02-01T00:00:00Z"),
      end: new Date("2026-02-16T00:00:00Z"),
      bucket: "day",
    });
    const last = periodOf("last-month", now);
    expect(periodBefore("last-month", last)).toEqual({
      start: new Date("2026-01-01T00:00:00Z"),
      end: new Date("2026-02-01T00:00:00Z"),
      bucket: "day",
    });
  });
});

function row(day: string, model: string, requests: number): Totals {
  return {
    hour: null,
    day,
    model,
    organization_id: null,
    project_id: null,
    key_id: null,
    project_name: null,
    key_name: null,
    tier: null,
    requests,
    prompt_tokens: 0,
    cached_tokens: 0,
    cache_write_tokens: 0,
    completion_tokens: 0,
    reasoning_tokens: 0,
    amount_micro: 0,
    draft_tokens: 0,
    accepted_draft_tokens: 0,
    adapter: null,
  };
}

describe("usage", () => {
  const period = periodOf("7d", new Date("2026-03-15T10:00:00Z"));
  it("adds up to the rows, whatever it is grouped by", () => {
    const rows = ["a", "b", "c", "d", "e", "f", "g"].flatMap((model, at) => [
      row("2026-03-10", model, at + 1),
      row("2026-03-12", model, 10),
    ]);
    const sum = rows.reduce((all, each) => all + each.requests, 0);
    for (const by of [undefined, "model"] as const) {
      const { series } = seriesOf(rows, rows, by, "requests", period);
      expect(series.flatMap((each) => each.values).reduce<number>((all, each) => all + (each ?? 0), 0)).toBe(
        sum,
      );
      expect(totalsOf(rows, by, "requests").reduce((all, each) => all + each.requests, 0)).toBe(sum);
    }
    expect(seriesOf(rows, rows, "model", "requests", period).series.at(-1)?.label).toBe("all others");
  });
  it("tells the rest of all from the groups alone", () => {
    const whole = [row("2026-03-10", "", 9), row("2026-03-11", "", 4)];
    const { series } = seriesOf([row("2026-03-10", "a", 4)], whole, "model", "requests", period);
    expect(series.map((each) => each.label)).toEqual(["a", "all others"]);
    expect(series.map((each) => each.values.slice(1, 3))).toEqual([
      [4, 0],
      [5, 4],
    ]);
  });
  it("has a zero where there was nothing", () => {
    const { times, series } = seriesOf([], [row("2026-03-10", "a", 4)], undefined, "requests", period);
    expect(times).toHaveLength(7);
    expect(series[0]?.values).toEqual([0, 4, 0, 0, 0, 0, 0]);
  });
});

it("phases stand in the order they happen, whatever order they came in", () => {
  const stored = ["auth", "limit", "queue", "route", "decode", "engine", "stream", "first_token", "new_one"];
  expect(inOrder(stored)).toEqual([
    "auth",
    "limit",
    "queue",
    "route",
    "engine",
    "first_token",
    "decode",
    "stream",
    "new_one",
  ]);
});

describe("ending a price", () => {
  const now = new Date("2026-11-24T12:00:00Z");
  it.each([
    ["has no end", "2026-11-01T00:00:00Z", null, true],
    ["has a successor", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", true],
    ["ends within the notice anyway", "2026-11-01T00:00:00Z", "2026-11-24T12:02:00Z", false],
    ["has ended", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", false],
    ["has not begun", "2026-12-01T00:00:00Z", null, false],
  ])("one that %s", (_, valid_from, valid_until, can) =>
    expect(canEnd({ valid_from, valid_until }, now)).toBe(can),
  );
});

it("says why a line of an invoice costs nothing", () => {
  const told = (
    input_micro: number | null,
    output_micro: number | null,
    price_percent = 100,
    cached_input_micro: number | null = null,
  ) => priceTold({ input_micro, cached_input_micro, output_micro, price_percent }, "USD");
  expect(told(null, null)).toBe("no price was set");
  expect(told(0, 0)).toBe("free");
  expect(told(0, 2_000_000)).toBe("0.00 / 2.00\u00a0USD");
  expect(told(1_000_000, 2_000_000, 50)).toBe("1.00 / 2.00\u00a0USD, 50 % of the price");
  expect(told(1_000_000, 2_000_000, 100, 100_000)).toBe("1.00 / 0.10 / 2.00\u00a0USD");
});
