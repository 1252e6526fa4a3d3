/** The operators' destinations. */
import type { Destination } from "../../shell/navigation";
import { OVERVIEW } from "./overview/destinations";
import { QUALITY } from "./quality/destinations";
import { SERVING } from "./serving/destinations";

export const OPERATIONS: Destination[] = [...OVERVIEW, ...SERVING, ...QUALITY];
