/** What a generation costs, from its tokens and the model's price. */
import type { Schemas } from "../../api/client";
import type { Generation } from "./generation";

type Price = Schemas["ModelPrice"];

/** The one that is valid now. */
export function priceNow(prices: Price[], model: string, now: Date): Price | null {
  return (
    prices.find(
      (each) =>
        each.model === model &&
        new Date(each.valid_from) <= now &&
        (each.valid_until === null || new Date(each.valid_until) > now),
    ) ?? null
  );
}

/** In millionths, to six digits of them. Until the engine's count is known, of the output so far alone. */
export function costMicro(price: Price, { usage, pieces }: Generation): number {
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const input = (usage?.prompt_tokens ?? 0) - cached;
  const output = usage?.completion_tokens ?? pieces;
  return (
    (input * price.input_micro + cached * price.cached_input_micro + output * price.output_micro) / 1_000_000
  );
}
