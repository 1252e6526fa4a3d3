import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { AT_LEAST_EVERY_MS, EVERY_MS, listen, REFUSED_MS } from "./live";

class Source extends EventTarget {
  static readonly CLOSED = 2;
  static made: Source[] = [];
  readyState = 0;
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  constructor(readonly url: string) {
    super();
    Source.made.push(this);
  }
  close() {
    this.readyState = Source.CLOSED;
  }
}

class Page extends EventTarget {
  hidden = false;
}

let page: Page;
const newest = () => Source.made.at(-1) as Source;

beforeEach(() => {
  vi.useFakeTimers();
  page = new Page();
  Source.made = [];
  vi.stubGlobal("EventSource", Source);
  vi.stubGlobal("document", page);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("listen", () => {
  it("tells of news, and asks rarely while it is connected", () => {
    const told = vi.fn();
    const end = listen(["usage", "slo"], told);
    expect(newest().url).toBe("/admin/v1/events?topics=usage,slo");
    newest().onopen?.();
    newest().dispatchEvent(new Event("news"));
    expect(told).toHaveBeenCalledTimes(2);
    vi.advanceTimersByTime(AT_LEAST_EVERY_MS - EVERY_MS);
    expect(told).toHaveBeenCalledTimes(2);
    vi.advanceTimersByTime(EVERY_MS);
    expect(told).toHaveBeenCalledTimes(3);
    end();
    expect(newest().readyState).toBe(Source.CLOSED);
  });

  it("asks every few seconds where it is refused, and tries again later", () => {
    const told = vi.fn();
    const end = listen(["usage"], told);
    newest().readyState = Source.CLOSED;
    newest().onerror?.();
    vi.advanceTimersByTime(2 * EVERY_MS);
    expect(told).toHaveBeenCalledTimes(2);
    expect(Source.made).toHaveLength(1);
    vi.advanceTimersByTime(REFUSED_MS);
    expect(Source.made).toHaveLength(2);
    end();
  });

  it("does neither while the page is hidden", () => {
    const told = vi.fn();
    const end = listen(["usage"], told);
    newest().onopen?.();
    page.hidden = true;
    page.dispatchEvent(new Event("visibilitychange"));
    expect(newest().readyState).toBe(Source.CLOSED);
    vi.advanceTimersByTime(10 * EVERY_MS);
    expect(told).toHaveBeenCalledTimes(1);
    page.hidden = false;
    page.dispatchEvent(new Event("visibilitychange"));
    expect(Source.made).toHaveLength(2);
    end();
  });
});
