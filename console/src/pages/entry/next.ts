/** Where to go after signing in: a path of the console's own, whatever else an address says. */
export function safeNext(next: string | undefined): string {
  if (next === undefined || !next.startsWith("/") || next.startsWith("//") || next.includes("\\")) return "/";
  return next;
}

/** The same of a whole address of the gateway's, `/console/…`. */
export function nextOf(address: string | null): string {
  return safeNext(address?.startsWith("/console/") ? address.slice("/console".length) : undefined);
}
