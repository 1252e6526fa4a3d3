/** Where to go after signing in: a path of the console's own, whatever else an address says. */
export function safeNext(next: string | undefined): string {
  if (next === undefined || !next.startsWith("/") || next.startsWith("//") || next.includes("\\")) return "/";
  return next;
}
