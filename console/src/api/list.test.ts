import { expect, test } from "vitest";
import { readEvery } from "./list";

const PAGES = [0, 1, 2].map((place) => ({
  data: [place * 2, place * 2 + 1],
  has_more: place < 2,
  next_cursor: place < 2 ? String(place + 1) : null,
}));
const page = async (cursor: string | undefined) => PAGES[Number(cursor ?? 0)] as (typeof PAGES)[number];

test("every page is read, and told while it is", async () => {
  const told: number[] = [];
  const every = await readEvery(page, 100, (rows) => told.push(rows), new AbortController().signal);
  expect(every).toEqual({ rows: [0, 1, 2, 3, 4, 5], hasMore: false });
  expect(told).toEqual([2, 4, 6]);
});

test("no more than asked for, and whether that was all", async () => {
  const signal = new AbortController().signal;
  expect(await readEvery(page, 3, () => {}, signal)).toEqual({ rows: [0, 1, 2], hasMore: true });
  expect(await readEvery(page, 5, () => {}, signal)).toEqual({ rows: [0, 1, 2, 3, 4], hasMore: true });
  expect((await readEvery(page, 6, () => {}, signal)).hasMore).toBe(false);
});

test("a signal ends it", async () => {
  const controller = new AbortController();
  const read = readEvery(page, 100, () => controller.abort(), controller.signal);
  await expect(read).rejects.toThrow();
});
