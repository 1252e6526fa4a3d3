/** Reads that add up a stretch of time: an organization may have two of them under way (`gateway.admin.organization_reports`),
 * so a page's further ones wait here instead of being refused. */
const REPORT =
  /\/(usage|usage\/events|audit|autocomplete|completion-texts|diagnosis|prefix-contract|prefix-totals|prefix-texts|slo|goodput|pools|serving|shadow|requests|sessions\/[^/]+|invoices\/[^/]+)$/;

export function isReport(request: Request): boolean {
  return request.method === "GET" && REPORT.test(new URL(request.url, "http://console").pathname);
}

/** So many at a time, the others in the order they came. */
export class Turns {
  private readonly waiting: (() => void)[] = [];
  private free: number;

  constructor(atOnce: number) {
    this.free = atOnce;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free -= 1;
    else await new Promise<void>((begin) => this.waiting.push(begin));
    try {
      return await work();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.free += 1;
    }
  }
}
