/** Amounts with the deployment's currency, which the session tells. */
import { useCallback } from "react";
import { money } from "../format/money";
import { useMyself } from "./session";

export type Money = (micro: number | null | undefined) => string;

export function useMoney(): Money {
  const { currency } = useMyself();
  return useCallback((micro) => money(micro, currency), [currency]);
}
