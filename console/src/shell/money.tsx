/** Amounts with the deployment's currency, which the session tells. */
import { useCallback } from "react";
import { cents, exactMoney, money } from "../format/money";
import { useMyself } from "./session";

export type Money = (micro: number | null | undefined) => string;

export function useMoney(): Money {
  const { currency } = useMyself();
  return useCallback((micro) => money(micro, currency), [currency]);
}

/** An amount to the cent, with all of its digits on hover. */
export function Cents({ micro }: { micro: number | null | undefined }) {
  const { currency } = useMyself();
  return <span title={exactMoney(micro, currency)}>{cents(micro, currency)}</span>;
}
