/** Whether somebody is at the page. Sessions end after some time without use, and what an open page asks by itself is none. */

export const UNATTENDED_MS = 60_000;
const SIGNS = ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"] as const;

let lastSign = Date.now();

export function watchAttention(page: EventTarget): void {
  const seen = () => {
    lastSign = Date.now();
  };
  for (const sign of SIGNS) page.addEventListener(sign, seen, { capture: true, passive: true });
}

export function unattended(): boolean {
  return Date.now() - lastSign > UNATTENDED_MS;
}
