import type { ReactNode } from "react";

export type Tone = "good" | "warn" | "bad" | "accent";

/** A word of state. Its text says what its colour does. */
export function Badge({ tone, children }: { tone?: Tone | undefined; children: ReactNode }) {
  return (
    <span className="badge" data-tone={tone}>
      {children}
    </span>
  );
}

export function StateBadge({ state }: { state: string }) {
  return <Badge tone={TONES[state]}>{state.replaceAll("_", " ")}</Badge>;
}

const TONES: Record<string, Tone> = {
  active: "good",
  enabled: "good",
  served: "good",
  delivered: "good",
  promoted: "good",
  done: "good",
  pass: "good",
  running: "accent",
  pending: "accent",
  queued: "accent",
  invited: "accent",
  waiting: "accent",
  expired: "warn",
  held: "warn",
  abandoned: "warn",
  refused: "warn",
  inconclusive: "warn",
  disabled: "warn",
  revoked: "bad",
  failed: "bad",
  fail: "bad",
  rolled_back: "bad",
};
