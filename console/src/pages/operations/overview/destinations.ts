/** Operators' destinations: the deployment as a whole. */
import type { Destination } from "../../../shell/navigation";

export const OVERVIEW: Destination[] = [];
