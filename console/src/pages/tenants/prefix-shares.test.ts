import { expect, test } from "vitest";
import { byTemplate, type Share, sharesByHour } from "./prefix-shares";

const ROW: Share = {
  hour: "2026-11-22T09:00:00Z",
  model: "m",
  endpoint: "chat",
  template: "abc",
  cause: "date" as Share["cause"],
  part: "system",
  requests: 2,
  prompt_tokens: 100,
  reusable_tokens: 60,
  cached_tokens: 50,
};

test("an hour's share is of all its tokens, not a mean of shares", () => {
  const rows = [ROW, { ...ROW, template: "def", prompt_tokens: 300, reusable_tokens: 0, cached_tokens: 0 }];
  const { times, series } = sharesByHour([...rows, { ...ROW, hour: "2026-11-22T08:00:00Z" }]);
  expect(times).toEqual([Date.UTC(2026, 10, 22, 8) / 1000, Date.UTC(2026, 10, 22, 9) / 1000]);
  expect(series.map((each) => each.values)).toEqual([
    [0.6, 0.15],
    [0.5, 0.125],
  ]);
});

test("a template is told what loses most of its tokens, the most losing template first", () => {
  const rows = [
    ROW,
    {
      ...ROW,
      cause: "id" as Share["cause"],
      part: "messages",
      prompt_tokens: 900,
      reusable_tokens: 100,
      cached_tokens: 0,
    },
    { ...ROW, template: "def", prompt_tokens: 10_000, reusable_tokens: 0 },
  ];
  const [first, second] = byTemplate(rows);
  expect(first).toMatchObject({ template: "def", reusable: 0 });
  expect(second).toMatchObject({
    template: "abc",
    cause: "id",
    part: "messages",
    requests: 4,
    reusable: 0.16,
  });
});
