/** Operators' destinations: what is served next and how good it is: releases, evals, reviews, reconciliation. */
import type { Destination } from "../../../shell/navigation";

export const QUALITY: Destination[] = [
  { label: "Releases", icon: "release", to: "/operations/releases", needs: "releases.read", operator: true },
  { label: "Evals", icon: "evals", to: "/operations/evals", needs: "evals.read", operator: true },
  {
    label: "Reviews",
    icon: "review",
    to: "/operations/reviews",
    needs: "reviews.vote",
    operator: true,
    folded: true,
  },
  {
    label: "Shadow",
    icon: "copy",
    to: "/operations/shadow",
    needs: "requests.read",
    operator: true,
    folded: true,
  },
  {
    label: "Cascades",
    icon: "cascade",
    to: "/operations/cascades",
    needs: "fleet.read",
    operator: true,
    folded: true,
  },
  {
    label: "Changes",
    icon: "change",
    to: "/operations/changes",
    needs: "requests.read",
    operator: true,
    folded: true,
  },
  {
    label: "Reconciliation",
    icon: "scale",
    to: "/operations/reconciliation",
    needs: "reconciliation.read",
    operator: true,
    folded: true,
  },
];
