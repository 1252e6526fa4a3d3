import { describe, expect, it } from "vitest";
import { OVERVIEW_PERIODS, spanOf } from "./choices";

const NOW = Date.parse("2026-11-23T14:07:31.250Z");

describe("what a period is cut into", () => {
  it("is whole buckets, up to the one that runs", () => {
    expect(
      OVERVIEW_PERIODS.map((period) => [period, spanOf(period, NOW).bucket, spanOf(period, NOW).end]),
    ).toEqual([
      ["1h", "minute", "2026-11-23T14:08:00.000Z"],
      ["6h", "minute", "2026-11-23T14:08:00.000Z"],
      ["24h", "hour", "2026-11-23T15:00:00.000Z"],
      ["7d", "hour", "2026-11-23T15:00:00.000Z"],
      ["30d", "day", "2026-11-24T00:00:00.000Z"],
    ]);
  });
  it("has a time for each, of no more than a chart shows", () => {
    for (const period of OVERVIEW_PERIODS) {
      const { start, end, times } = spanOf(period, NOW);
      expect(times[0]).toBe(Date.parse(start) / 1000);
      expect(times.at(-1)).toBeLessThan(Date.parse(end) / 1000);
      expect(times.length).toBeLessThanOrEqual(360);
    }
    expect(spanOf("30d", NOW).times.length).toBe(30);
  });
});
