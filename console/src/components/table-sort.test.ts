import { expect, test } from "vitest";
import { filtersOf, searchOf, text } from "../shell/search";
import { inOrder, nameOf, orderIn, sortWith } from "./table-sort";

test("a table's order is read from the address, and only what it can be sorted by", () => {
  const sort = "audit-log.at.desc,by-part.requests.asc";
  expect(nameOf("By part")).toBe("by-part");
  expect(orderIn(sort, "audit-log", ["at", "action"])).toEqual({ id: "at", desc: true });
  expect(orderIn(sort, "by-part", ["requests"])).toEqual({ id: "requests", desc: false });
  expect(orderIn(sort, "audit-log", ["action"])).toBeNull();
  expect(orderIn("audit-log.at.upwards", "audit-log", ["at"])).toBeNull();
  expect(orderIn(undefined, "audit-log", ["at"])).toBeNull();
});

test("choosing an order leaves the other tables' as it is", () => {
  const sort = sortWith("by-part.requests.asc", "audit-log", { id: "at", desc: true });
  expect(sort).toBe("by-part.requests.asc,audit-log.at.desc");
  expect(sortWith(sort, "by-part", null)).toBe("audit-log.at.desc");
  expect(sortWith("audit-log.at.desc", "audit-log", null)).toBeUndefined();
});

test("what has no value comes last, whichever way round", () => {
  const rows = [{ of: null }, { of: 2 }, { of: 0 }, { of: 10 }];
  const sorted = (desc: boolean) => inOrder(rows, (row) => row.of, desc).map((row) => row.of);
  expect(sorted(false)).toEqual([0, 2, 10, null]);
  expect(sorted(true)).toEqual([10, 2, 0, null]);
});

test("a page's parameters keep its order, which no list is asked with, and forget what is none of theirs", () => {
  const read = searchOf((raw) => ({ model: text(raw, "model") }));
  const search = read({ model: "fake", sort: "prices.model.asc", other: "1" });
  expect(search).toEqual({ model: "fake", sort: "prices.model.asc", other: undefined });
  expect(Object.keys(search)).toContain("other");
  expect(filtersOf(search)).toEqual({ model: "fake" });
});
