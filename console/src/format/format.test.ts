import { describe, expect, it } from "vitest";
import { budgetLeft } from "./budget";
import { csv } from "./csv";
import { amount, cents, exactMoney, microOf, money } from "./money";
import { change, count, duration, milliseconds, percent, perSecond, short, signedPercent } from "./number";
import { notAhead, relative, utcMonth } from "./time";

describe("numbers", () => {
  it("groups thousands and says nothing of nothing", () => {
    expect(count(1234567)).toBe("1,234,567");
    expect(count(null)).toBe("–");
  });
  it("shortens from a million on", () => {
    expect(short(74_912)).toBe("74,912");
    expect(short(999_999)).toBe("999,999");
    expect(short(1_234_567)).toBe("1.2M");
  });
  it.each([
    [0.123, "0.12 ms"],
    [12.34, "12.3 ms"],
    [240.4, "240 ms"],
    [1234, "1.23 s"],
    [90_000, "1 min 30 s"],
  ])("%s ms is %s", (ms, text) => expect(milliseconds(ms)).toBe(text));
  it.each([
    [0, "0 s"],
    [59, "59 s"],
    [3600, "1 h"],
    [86_400, "1 day"],
    [200_000, "2 days 7 h"],
  ])("%s s is %s", (seconds, text) => expect(duration(seconds)).toBe(text));
  it("tells a change as a share of what was before", () => {
    expect(signedPercent(change(100, 125))).toBe("+25.0 %");
    expect(signedPercent(change(100, 50))).toBe("−50.0 %");
    expect(signedPercent(change(0, 50))).toBe("new");
    expect(signedPercent(change(0, 0))).toBe("0.0 %");
    expect(percent(0.1234)).toBe("12.3 %");
  });
});

describe("money", () => {
  it.each([
    [0, "0.00"],
    [1_234, "0.001234"],
    [1_200, "0.0012"],
    [1_234_567, "1.23"],
    [1_234_567_890_000, "1,234,567.89"],
    [-2_500_000, "−2.50"],
  ])("%s millionths are %s", (micro, text) => expect(amount(micro)).toBe(text));
  it.each([
    [125_000, "0.125\u00a0USD"],
    [15_000_000, "15.00\u00a0USD"],
    [1_234_567, "1.234567\u00a0USD"],
    [null, "–"],
  ])("a price of %s millionths is %s", (micro, text) => expect(exactMoney(micro, "USD")).toBe(text));
  it("names the currency, on the same line", () => {
    expect(money(2_500_000, "EUR")).toBe("2.50\u00a0EUR");
    expect(money(0, "USD")).toBe("0.00\u00a0USD");
    expect(money(-1_234, "USD")).toBe("−0.001234\u00a0USD");
  });
  it("rounds to a cent where there is no room for more, and never to nothing", () => {
    expect(cents(52, "USD")).toBe("< 0.01\u00a0USD");
    expect(cents(0, "USD")).toBe("0.00\u00a0USD");
    expect(cents(1_855_000, "USD")).toBe("1.86\u00a0USD");
    expect(cents(-52, "USD")).toBe("> −0.01\u00a0USD");
    expect(cents(null, "USD")).toBe("–");
  });
  it("tells a rate by the second", () => {
    expect(perSecond(0.0017)).toBe("0.0017/s");
    expect(perSecond(0.25)).toBe("0.25/s");
    expect(perSecond(120)).toBe("120/s");
    expect(perSecond(null)).toBe("");
  });
  it("says nothing of nothing", () => expect(money(null, "EUR")).toBe("–"));
  it("reads what it writes, to the millionth", () => {
    expect(microOf("12.5")).toBe(12_500_000);
    expect(microOf("0.000001")).toBe(1);
    expect(microOf("0.1234567")).toBeNull();
    expect(microOf("-1")).toBeNull();
    expect(microOf("1e3")).toBeNull();
  });
});

describe("times", () => {
  const now = new Date("2026-11-23T04:00:00Z");
  it.each([
    ["2026-11-23T03:59:55Z", "just now"],
    ["2026-11-23T03:57:00Z", "3 minutes ago"],
    ["2026-11-22T04:00:00Z", "yesterday"],
    ["2026-11-25T04:00:00Z", "in 2 days"],
    ["2026-11-26T03:59:00Z", "in 3 days"],
    ["2026-11-25T15:00:00Z", "in 2 days"],
    ["2026-11-20T04:00:30Z", "3 days ago"],
    ["2026-11-23T04:00:59.700Z", "in 1 minute"],
    ["2026-11-23T04:00:50Z", "in 50 seconds"],
    ["2026-11-23T04:59:40Z", "in 1 hour"],
    ["2026-11-23T05:29:00Z", "in 1 hour"],
    ["2026-11-24T03:45:00Z", "tomorrow"],
    ["2026-12-23T16:30:00Z", "next month"],
    ["2027-11-22T04:00:00Z", "next year"],
  ])("%s is %s", (at, text) => expect(relative(at, now)).toBe(text));
  it("cuts months in UTC", () => {
    expect(utcMonth(new Date("2026-11-30T23:59:59Z"))).toBe("2026-11");
  });
});

describe("CSV", () => {
  it("quotes what has to be, and doubles quotes", () => {
    expect(
      csv(
        ["a", "b"],
        [
          ['x "y"', "1,5"],
          [null, 3],
        ],
      ),
    ).toBe('a,b\r\n"x ""y""","1,5"\r\n,3\r\n');
  });
  it("lets no name be a formula of a spreadsheet", () => {
    expect(csv(["name"], [["=HYPERLINK(1)"], [-5]])).toBe("name\r\n'=HYPERLINK(1)\r\n-5\r\n");
    expect(csv(["name"], [["acme; =1"], ["＝1"], [" +1"], ["a-b;c"]])).toBe(
      "name\r\nacme;' =1\r\n'＝1\r\n' +1\r\na-b;c\r\n",
    );
    expect(csv(["name"], [['a;"=1;']])).toBe(`name\r\n"a;'""=1;"\r\n`);
  });
});

it("tells no moment that is to come", () => {
  const now = new Date("2026-11-24T10:00:30Z");
  expect(notAhead("2026-11-24T10:01:00Z", now)).toBe("2026-11-24T10:00:30.000Z");
  expect(notAhead("2026-11-24T10:00:00Z", now)).toBe("2026-11-24T10:00:00.000Z");
});

it("an overspent budget says how often it is spent, and one of few requests says nothing", () => {
  const objective = (budget_left: number | null, counted: number) =>
    ({ budget_left, target: 0.99, windows: [{ counted }] }) as unknown as Parameters<typeof budgetLeft>[0];
  expect(budgetLeft(objective(0.42, 1000))).toBe("42.0 %");
  expect(budgetLeft(objective(-2.85, 1000))).toBe("spent 3.9 times");
  expect(budgetLeft(objective(-2.85, 26))).toBe("–");
  expect(budgetLeft(objective(null, 0))).toBe("–");
});
