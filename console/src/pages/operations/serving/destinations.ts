/** Operators' destinations: what serves and how well: fleet, objectives, diagnosis, prefixes. */
import type { Destination } from "../../../shell/navigation";

export const SERVING: Destination[] = [];
