import { QueryClient } from "@tanstack/react-query";
import { describe, expect, it } from "vitest";
import { forgetOthers } from "./forget";

const SESSION = ["session"] as const;
const of = (id: string | null) => ({ signed_in: id === null ? null : { account: { id } }, methods: {} });

function signedIn(id: string) {
  const queries = new QueryClient();
  forgetOthers(queries, SESSION);
  queries.setQueryData(SESSION, of(id));
  queries.setQueryData(["playground", "key"], "sk-slip-of-one");
  queries.setQueryData(["usage", "of one"], [1]);
  return queries;
}

describe("what was kept for somebody", () => {
  it.each([null, "another"])("goes when %s is signed in", (next) => {
    const queries = signedIn("one");
    queries.setQueryData(SESSION, of(next));
    expect(queries.getQueryData(["playground", "key"])).toBeUndefined();
    expect(queries.getQueryData(["usage", "of one"])).toBeUndefined();
    expect(queries.getQueryData(SESSION)).toEqual(of(next));
  });

  it("stays while the same person is", () => {
    const queries = signedIn("one");
    queries.setQueryData(SESSION, of("one"));
    expect(queries.getQueryData(["playground", "key"])).toBe("sk-slip-of-one");
  });
});
