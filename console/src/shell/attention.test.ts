import { afterEach, expect, it, vi } from "vitest";
import { api } from "../api/client";
import { UNATTENDED_MS, watchAttention } from "./attention";

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("says of requests of a page that nobody touches that they are the page's own", async () => {
  vi.useFakeTimers();
  const sent: (string | null)[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    sent.push(request.headers.get("X-Slipstream-Background"));
    return new Response("{}", { headers: { "Content-Type": "application/json" } });
  });
  const page = new EventTarget();
  watchAttention(page);
  const ask = () => api.GET("/admin/v1/me", { baseUrl: "http://gateway.test" });

  page.dispatchEvent(new Event("keydown"));
  await ask();
  vi.advanceTimersByTime(UNATTENDED_MS + 1);
  await ask();
  page.dispatchEvent(new Event("pointermove"));
  await ask();

  expect(sent).toEqual([null, "true", null]);
});
