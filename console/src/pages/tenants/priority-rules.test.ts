import { describe, expect, it } from "vitest";
import { effectivePriority, type PriorityRule, shareOf } from "./priority-rules";

const rule = (part: Partial<PriorityRule>): PriorityRule => ({
  level: "organization",
  subject_id: "1",
  tier: null,
  service_class: null,
  share: null,
  ...part,
});

describe("which class and shares a request has", () => {
  it("is standard with a share of 100 where nothing is said", () => {
    expect(effectivePriority([], "chat")).toEqual({
      serviceClass: "standard",
      classFrom: null,
      share: 100,
      projectShare: 100,
    });
  });
  it("takes the tier's rule before that for all tiers, class and share each by itself", () => {
    const rules = [
      rule({ tier: "chat", service_class: "interactive" }),
      rule({ service_class: "offline", share: 300 }),
    ];
    expect(effectivePriority(rules, "chat")).toMatchObject({ serviceClass: "interactive", share: 300 });
    expect(effectivePriority(rules, "autocomplete")).toMatchObject({ serviceClass: "offline", share: 300 });
  });
  it("takes the lowest class of the levels, and never lifts one above the organization's", () => {
    const key = rule({ level: "key", service_class: "interactive" });
    const project = rule({ level: "project", service_class: "offline", share: 50 });
    expect(effectivePriority([key], "chat")).toMatchObject({ serviceClass: "standard", classFrom: null });
    expect(effectivePriority([key, project], "chat")).toMatchObject({
      serviceClass: "offline",
      classFrom: project,
      share: 100,
      projectShare: 50,
    });
  });
});

describe("a share that is typed", () => {
  it("is a whole number from 1 to 10,000, or nothing", () => {
    expect([" ", "1", "10000"].map(shareOf)).toEqual([null, 1, 10_000]);
    expect(["0", "10001", "1.5", "-3", "much"].map(shareOf)).toEqual(Array(5).fill(undefined));
  });
});
