/** Operators' destinations: what is served next and how good it is: releases, evals, reviews, reconciliation. */
import type { Destination } from "../../../shell/navigation";

export const QUALITY: Destination[] = [
  { label: "Releases", icon: "release", to: "/operations/releases", needs: "releases.read", operator: true },
  { label: "Evals", icon: "evals", to: "/operations/evals", needs: "evals.read", operator: true },
];
