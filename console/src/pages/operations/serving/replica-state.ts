/** A replica's state in a word and a sentence, as `slipstream fleet` has it. */
import type { Schemas } from "../../../api/client";
import type { Tone } from "../../../components/badge";

export type LiveReplica = Schemas["LiveReplica"];

export interface ReplicaState {
  word: string;
  tone: Tone;
  /** Why; empty where the word says it. */
  why: string;
}

export function stateOf(replica: LiveReplica): ReplicaState {
  if (replica.draining || replica.weight === 0) {
    const by = replica.draining ? "Drained with `slipstream fleet drain`." : "Its weight is 0.";
    return replica.leases > 0
      ? { word: "draining", tone: "warn", why: `Running requests: ${replica.leases}. ${by}` }
      : { word: "drained", tone: "warn", why: by };
  }
  if (replica.breaker !== "closed")
    return {
      word: `breaker ${replica.breaker.replace("_", "-")}`,
      tone: replica.breaker === "open" ? "bad" : "warn",
      why: replica.breaker_reason,
    };
  if (replica.health !== "healthy")
    return {
      word: replica.health,
      tone: replica.health === "unknown" ? "accent" : "bad",
      why: replica.detail,
    };
  return { word: "healthy", tone: "good", why: "" };
}
