import { expect, test } from "vitest";
import { milliseconds } from "../format/number";
import { cellsOf } from "./chart-cells";

test("what is not known is no zero", () => {
  const series = [
    { label: "p50", values: [0, null] },
    { label: "p95", values: [12.3] },
  ];
  expect(cellsOf(series, 0, milliseconds)).toEqual(["0.00 ms", "12.3 ms"]);
  expect(cellsOf(series, 1, milliseconds)).toEqual(["–", "–"]);
});
