import { expect, test } from "vitest";
import { isReport, Turns } from "./reports";

test("two run at a time, the others in turn, and one that fails makes room", async () => {
  const turns = new Turns(2);
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const all = [0, 1, 2, 3].map((number) =>
    turns
      .run(async () => {
        begun.push(number);
        await new Promise<void>((end) => ends.push(end));
        if (number === 0) throw new Error("failed");
        return number;
      })
      .catch(() => -1),
  );
  await Promise.resolve();
  expect(begun).toEqual([0, 1]);
  ends[0]?.();
  await all[0];
  await Promise.resolve();
  expect(begun).toEqual([0, 1, 2]);
  ends[1]?.();
  ends[2]?.();
  await all[2];
  await Promise.resolve();
  ends[3]?.();
  expect(await Promise.all(all)).toEqual([-1, 1, 2, 3]);
});

test("reports are told by their path", () => {
  const get = (path: string) => isReport(new Request(`http://here/admin/v1${path}`));
  expect(get("/organizations/1/usage?bucket=day")).toBe(true);
  expect(get("/organizations/1/autocomplete?group_by=day")).toBe(true);
  expect(get("/slo/goodput")).toBe(true);
  expect(get("/organizations/1/projects")).toBe(false);
  expect(isReport(new Request("http://here/admin/v1/requests", { method: "POST" }))).toBe(false);
});
