/** What engines counted beside the ledger, in words. Pure; docs/runbooks/drift.md has it at length. */
import type { Schemas } from "../../../api/client";

export type Window = Schemas["ReconciledWindow"];

export const drifts = (window: Window) => window.prompt_drift !== 0 || window.completion_drift !== 0;

const YOUNG_MS = 24 * 3_600_000;

/** What a window's difference may be, and what to do. */
export function adviceOn(window: Window, now: Date = new Date()): string {
  if (!drifts(window)) return "agrees";
  const plus = window.prompt_drift > 0 || window.completion_drift > 0;
  const young = now.getTime() - new Date(window.window_until).getTime() < YOUNG_MS;
  if (!plus)
    return "The engine counted fewer tokens. Either it restarted between two samples (sample more often), or it does not count some requests (compare one request’s usage with the engine’s counters).";
  if (window.uncertain_attempts > 0)
    return "Attempts with inexact token counts may explain the difference. Look at their rows in the ledger.";
  if (young)
    return "The ledger lacks tokens. A gateway may still have rows to send; the comparison is repeated for a day.";
  return "The ledger lacks tokens, and all counts are exact. Check whether a client calls the engine directly, and whether a gateway still has an unsent journal.";
}

/** Tokens that engines counted beyond the ledger, and that they did not: neither makes up for the other. */
export interface Apart {
  plus: number;
  minus: number;
}

export const ALIKE: Apart = { plus: 0, minus: 0 };
export const added = (apart: Apart, drift: number): Apart => ({
  plus: apart.plus + Math.max(drift, 0),
  minus: apart.minus + Math.min(drift, 0),
});
const sizeOf = (apart: Apart) => apart.plus - apart.minus;

/** "+120 −40". */
export function apartTold({ plus, minus }: Apart): string {
  if (plus === 0 && minus === 0) return "0";
  return [plus, minus]
    .filter((each) => each !== 0)
    .map(signed)
    .join(" ");
}

export interface EngineDrift {
  replica_id: string;
  windows: number;
  drifting: number;
  prompt: Apart;
  completion: Apart;
  engine_tokens: number;
  last_until: string;
}

/** Windows by engine, those that differ most first. */
export function byEngine(windows: Window[]): EngineDrift[] {
  const found = new Map<string, EngineDrift>();
  for (const window of windows) {
    const known = found.get(window.replica_id) ?? {
      replica_id: window.replica_id,
      windows: 0,
      drifting: 0,
      prompt: ALIKE,
      completion: ALIKE,
      engine_tokens: 0,
      last_until: window.window_until,
    };
    found.set(window.replica_id, {
      ...known,
      windows: known.windows + 1,
      drifting: known.drifting + (drifts(window) ? 1 : 0),
      prompt: added(known.prompt, window.prompt_drift),
      completion: added(known.completion, window.completion_drift),
      engine_tokens: known.engine_tokens + window.engine_prompt_tokens + window.engine_completion_tokens,
      last_until: known.last_until > window.window_until ? known.last_until : window.window_until,
    });
  }
  const size = (each: EngineDrift) => sizeOf(each.prompt) + sizeOf(each.completion);
  return [...found.values()].sort(
    (one, other) => size(other) - size(one) || one.replica_id.localeCompare(other.replica_id),
  );
}

/** 120 → "+120": with its sign, for differences. */
export function signed(value: number): string {
  const text = Math.abs(value).toLocaleString("en-US");
  return value > 0 ? `+${text}` : value < 0 ? `−${text}` : "0";
}
