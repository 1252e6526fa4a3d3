import { expect, test } from "vitest";
import { isOperators, modeOf, NAVIGATION } from "./navigation";

test("a page is of the deployment, of an organization, or of both", () => {
  expect(modeOf("/operations/fleet")).toBe("deployment");
  expect(modeOf("/organizations")).toBe("deployment");
  expect(modeOf("/org/1/usage")).toBe("organization");
  expect(modeOf("/playground/chat")).toBeNull();
});

test("a mode shows ten destinations at most, and the rest under More", () => {
  for (const destinations of Object.values(NAVIGATION))
    expect(destinations.filter((each) => !each.folded).length).toBeLessThanOrEqual(10);
});

test("no destination stands twice in a mode", () => {
  for (const destinations of Object.values(NAVIGATION))
    expect(new Set(destinations.map((each) => each.to)).size).toBe(destinations.length);
});

test("a tenant's own request is no page of operators", () => {
  expect(isOperators("/operations")).toBe(true);
  expect(isOperators("/operations/requests")).toBe(true);
  expect(isOperators("/operations/requests/req_1")).toBe(false);
  expect(isOperators("/org/1")).toBe(false);
});
