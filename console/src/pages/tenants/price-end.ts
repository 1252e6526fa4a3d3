/** When a price may be ended from the console. */
import type { Schemas } from "../../api/client";

/** The API wants a minute, and this clock may not be the gateway's. */
export const NOTICE_MS = 120_000;

/** One that has begun and goes on for longer than the notice, to another price too. What has not begun is removed. */
export function canEnd(price: Pick<Schemas["ModelPrice"], "valid_from" | "valid_until">, now: Date): boolean {
  const end = now.getTime() + NOTICE_MS;
  const goesOn = price.valid_until === null || new Date(price.valid_until).getTime() > end;
  return new Date(price.valid_from) <= now && goesOn;
}
