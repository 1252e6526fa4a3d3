/** Votes in words. Pure. */
import type { Schemas } from "../../../api/client";

type Vote = Schemas["Vote"];

export const VOTES: { choice: Vote["choice"]; label: string; key: string }[] = [
  { choice: "left", label: "Left is better", key: "1" },
  { choice: "right", label: "Right is better", key: "2" },
  { choice: "both", label: "Both are good", key: "3" },
  { choice: "neither", label: "Both are bad", key: "4" },
  { choice: "skip", label: "Skip", key: "5" },
];

/** What a vote came to, once it may be known. */
export function preferenceTold(vote: Vote): string {
  const where = `The ${vote.candidate} answer of the last pair was the candidate’s`;
  switch (vote.choice) {
    case "left":
    case "right":
      return `${where}: you preferred ${vote.choice === vote.candidate ? "the candidate" : "the baseline"}.`;
    case "both":
      return `${where}; you found both good.`;
    case "neither":
      return `${where}; you found both bad.`;
    case "skip":
      return `${where}; you skipped it.`;
  }
}
