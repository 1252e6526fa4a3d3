/** Money is counted in millionths of the deployment's currency. Amounts are shown to the cent, prices exactly. */

/** 1_234_567 → "1.23 USD"; a part of a cent keeps its digits: 1_234 → "0.001234 USD". */
export function money(micro: number | null | undefined, currency: string): string {
  return micro == null ? "–" : `${amount(micro)}\u00a0${currency}`;
}

/** A price: 125_000 → "0.125 USD". */
export function exactMoney(micro: number | null | undefined, currency: string): string {
  return micro == null ? "–" : `${exact(micro)}\u00a0${currency}`;
}

const CENT = 10_000;

/** For tiles: 1_855_000 → "1.86 USD"; less than a cent is "< 0.01 USD", for its digits say nothing at a glance. */
export function cents(micro: number | null | undefined, currency: string): string {
  if (micro == null || micro === 0 || Math.abs(micro) >= CENT)
    return money(micro == null ? micro : Math.round(micro / CENT) * CENT, currency);
  return `${micro < 0 ? "> −" : "< "}0.01\u00a0${currency}`;
}

/** Without its currency: for fields, and where it stands beside. */
export function amount(micro: number): string {
  return written(micro, Math.abs(micro) >= 100_000 ? 2 : 6);
}

/** All digits, two at least, without a currency: for prices and fields. */
export function exact(micro: number): string {
  return written(micro, 6);
}

function written(micro: number, digits: number): string {
  const sign = micro < 0 ? "−" : "";
  const [whole = "0", part = ""] = (Math.abs(micro) / 1_000_000).toFixed(digits).split(".");
  return `${sign}${whole.replace(/\B(?=(\d{3})+$)/g, ",")}.${part.replace(/0+$/, "").padEnd(2, "0")}`;
}

/** "12.50" → 12_500_000. null for what is no amount of at most six decimals. */
export function microOf(text: string): number | null {
  const match = /^(\d{1,9})(?:\.(\d{1,6}))?$/.exec(text.trim());
  if (match === null) return null;
  return Number(match[1]) * 1_000_000 + Number((match[2] ?? "").padEnd(6, "0"));
}
