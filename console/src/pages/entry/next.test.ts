import { expect, it } from "vitest";
import { nextOf, safeNext } from "./next";

it.each(["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "evil"])(
  "%s is no page of the console",
  (next) => expect(safeNext(next)).toBe("/"),
);

it("a page of the console is gone to with its filters", () => {
  expect(safeNext("/org/1/usage?by=model")).toBe("/org/1/usage?by=model");
});

it("a whole address leads to the console's page alone", () => {
  expect(nextOf("/console/org/1/usage?by=model")).toBe("/org/1/usage?by=model");
  for (const other of [null, "/admin/v1/me", "/console//evil.example", "https://evil.example/console/"]) {
    expect(nextOf(other)).toBe("/");
  }
});
