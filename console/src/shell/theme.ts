/** Light or dark: the system's choice until somebody makes another, which this browser remembers. */
import { useSyncExternalStore } from "react";

export type Choice = "system" | "light" | "dark";

const KEPT = "slipstream.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function chosen(): Choice {
  const kept = localStorage.getItem(KEPT);
  return kept === "light" || kept === "dark" ? kept : "system";
}

function applyTheme(): void {
  const choice = chosen();
  const dark = choice === "dark" || (choice === "system" && system.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  for (const listener of listeners) listener();
}

export function choose(choice: Choice): void {
  if (choice === "system") localStorage.removeItem(KEPT);
  else localStorage.setItem(KEPT, choice);
  applyTheme();
}

/** Paint by the choice, and again whenever the system's changes. */
export function followTheme(): void {
  applyTheme();
  system.addEventListener("change", applyTheme);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useChoice(): Choice {
  return useSyncExternalStore(subscribe, chosen);
}

/** For canvases, which CSS does not paint. */
export function useTheme(): string {
  return useSyncExternalStore(subscribe, () => document.documentElement.dataset.theme ?? "light");
}
