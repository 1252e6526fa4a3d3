/** An invoice in words. Pure. */
import type { Schemas } from "../../api/client";
import { exact, exactMoney } from "../../format/money";

type Invoice = Schemas["Invoice"];

const MONTH = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });
const DAY = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "long",
  year: "numeric",
  timeZone: "UTC",
});

/** "November 2026". */
export const monthName = (begin: string) => MONTH.format(new Date(begin));

/** "1 November 2026 to 30 November 2026 (UTC)". end: the first moment after the month. */
export function periodTold(begin: string, end: string): string {
  return `${DAY.format(new Date(begin))} to ${DAY.format(Date.parse(end) - 1)} (UTC)`;
}

export const isOver = (end: string, now = Date.now()) => Date.parse(end) <= now;

type Rates = Pick<
  Schemas["InvoiceLine"],
  "input_micro" | "cached_input_micro" | "output_micro" | "price_percent"
>;

/** The rates of a line; without any, why it costs nothing. */
export function priceTold(
  { input_micro, cached_input_micro, output_micro, price_percent }: Rates,
  currency: string,
): string {
  if (input_micro === null) return "no price was set";
  if (input_micro === 0 && !output_micro) return "free";
  const part = price_percent === 100 ? "" : `, ${price_percent} % of the price`;
  const cached = cached_input_micro === null ? "" : `${exact(cached_input_micro)} / `;
  return `${exact(input_micro)} / ${cached}${exactMoney(output_micro ?? 0, currency)}${part}`;
}

/** What rounding added to the total or took from it. */
export function roundingTold({
  rounding_micro,
  currency,
}: Pick<Invoice, "rounding_micro" | "currency">): string {
  const micro = Number(rounding_micro);
  const rule = `Each request’s amount is rounded to a millionth of a ${currency}`;
  if (micro === 0) return `${rule}; this did not change the total.`;
  const size = Math.abs(micro / 1_000_000)
    .toFixed(9)
    .replace(/0+$/, "");
  return `${rule}; this ${micro > 0 ? "added" : "took"} ${size} ${currency} ${micro > 0 ? "to" : "from"} the total.`;
}
