/** Links that others made: `/console/#/welcome?token=…` of first starts and invitations, `/console/#/sign-in?error=…`.
 * They carry what they say behind the `#`, which browsers send to nobody; it stays there. */
export function moveLink(): void {
  const match = /^#\/(welcome|sign-in)\?(.*)$/.exec(location.hash);
  if (match === null) return;
  history.replaceState(null, "", `/console/${match[1]}#${match[2]}`);
}

/** What stands behind the `#`: "token=…". */
export function fragment(name: string): string | null {
  return new URLSearchParams(location.hash.slice(1)).get(name);
}
