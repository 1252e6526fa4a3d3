/** Operators' destinations: what is served next and how good it is: releases, evals, reviews, reconciliation. */
import type { Destination } from "../../../shell/navigation";

export const QUALITY: Destination[] = [];
