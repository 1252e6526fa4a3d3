import { describe, expect, it } from "vitest";
import { refusalOf } from "./refusals";

describe("why the provider opened nothing", () => {
  it("is told by the gateway's codes", () => {
    expect(refusalOf("oidc_no_member")).toContain("not a member");
    expect(refusalOf("rate_limit_exceeded")).toContain("(rate_limit_exceeded)");
    expect(refusalOf(null)).toBeNull();
  });
  it.each(["Your account is locked, call 555 1234", "<b>x</b>", "", "https://evil.example"])(
    "repeats no words of a link: %s",
    (words) => expect(refusalOf(words)).toBe(refusalOf("Any Other Words")),
  );
  it.each(["__proto__", "constructor"])("is a sentence for %s", (code) =>
    expect(typeof refusalOf(code)).toBe("string"),
  );
});
