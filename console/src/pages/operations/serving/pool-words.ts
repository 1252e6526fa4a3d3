/** What a pool serves and how it does, in words. Pure. */
import type { Schemas } from "../../../api/client";
import { count, milliseconds, perSecond } from "../../../format/number";

/** "serves fake-chat, fake-code"; a model that is tried out on the pool is named as such. */
export function modelsTold(pool: string, models: Schemas["Model"][]): string {
  const names = models.flatMap((model) =>
    model.pool === pool ? [model.name] : model.canary?.pool === pool ? [`${model.name} (in a trial)`] : [],
  );
  return names.length === 0 ? "serves no model" : `serves ${names.join(", ")}`;
}

/** Of the last hour. */
export function servedTold(figures: Schemas["ServingFigures"] | undefined): string {
  if (!figures || figures.requests === 0) return "no request in the last hour";
  const ttft = figures.ttft_ms;
  const first = ttft ? `, first token p50 ${milliseconds(ttft.p50)}, p99 ${milliseconds(ttft.p99)}` : "";
  return `${count(figures.requests)} requests in the last hour (${perSecond(figures.requests_per_s)})${first}`;
}
