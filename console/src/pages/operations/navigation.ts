/** The operators' destinations. */
import type { Destination } from "../../shell/navigation";

export const OPERATIONS: Destination[] = [];
