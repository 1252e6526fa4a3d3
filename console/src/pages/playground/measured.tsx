/** What a generation measured, while it runs and after. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, read } from "../../api/client";
import { Card, Stats } from "../../components/page";
import { money } from "../../format/money";
import { count, milliseconds } from "../../format/number";
import { useMyself } from "../../shell/session";
import { useOrganizationId } from "../../shell/shell";
import { Waterfall } from "../tenants/waterfall";
import { type Generation, phasesSoFar, tokensPerSecond } from "./generation";
import { costMicro, priceNow } from "./price";

const TRACE_RETRIES = 12;
/** The record of a request is written about a second after its answer; asked earlier, the browser logs a 404. */
const TRACE_WAIT_MS = 1_500;

export function Measured({ generation, model }: { generation: Generation; model: string }) {
  const { can, currency } = useMyself();
  const organizationId = useOrganizationId();
  const prices = useQuery({
    queryKey: ["prices", "playground", model],
    queryFn: () => read(api.GET("/admin/v1/prices", { params: { query: { model, limit: 100 } } })),
    staleTime: 60_000,
    enabled: can("prices.read") && model !== "",
  });
  const requestId = generation.requestId;
  const trace = useQuery({
    queryKey: ["request", requestId],
    enabled: !generation.running && requestId !== null && can("requests.read"),
    retry: TRACE_RETRIES,
    retryDelay: 0,
    // and the ledger's row, which tells the amount, may come after the record
    refetchInterval: (query) =>
      query.state.data?.attempts.length === 0 && query.state.dataUpdateCount < TRACE_RETRIES
        ? TRACE_WAIT_MS
        : false,
    queryFn: async () => {
      await new Promise((waited) => setTimeout(waited, TRACE_WAIT_MS));
      return read(
        api.GET("/admin/v1/requests/{request_id}", { params: { path: { request_id: requestId ?? "" } } }),
      );
    },
  });
  const price = priceNow(prices.data?.data ?? [], model, new Date());
  const speed = tokensPerSecond(generation);
  const { usage } = generation;
  return (
    <div className="stack-tight">
      <Stats
        figures={[
          { name: "First token", value: milliseconds(generation.ttftMs), note: "in this browser" },
          { name: "Speed", value: speed === null ? "–" : speed.toFixed(1), note: "tokens/s" },
          {
            name: "Tokens",
            value: count(usage?.completion_tokens ?? generation.pieces),
            note: usage
              ? `out; ${count(usage.prompt_tokens)} in, ${count(usage.prompt_tokens_details?.cached_tokens ?? 0)} cached`
              : "so far",
          },
          {
            name: "Price",
            value: price ? money(Math.round(costMicro(price, generation)), price.currency) : "–",
            note: price ? (usage ? undefined : "output so far") : "no price",
          },
        ]}
      />
      {trace.data ? (
        <Card title="Where the time went">
          <div className="stack-tight">
            <Waterfall phases={trace.data.phases_ms} />
            <p className="small quiet">
              {trace.data.attempts.length > 0 && `Billed ${money(trace.data.amount_micro, currency)} · `}
              request{" "}
              <Link
                to="/org/$organizationId/requests/$requestId"
                params={{ organizationId, requestId: trace.data.request_id }}
              >
                {trace.data.request_id}
              </Link>
            </p>
          </div>
        </Card>
      ) : (
        generation.headMs !== null && (
          <Card
            title={generation.running ? "Where the time goes" : "Where the time went"}
            about="The gateway’s clock measures the time until the engine begins; this browser’s clock measures the rest."
          >
            <Waterfall phases={phasesSoFar(generation)} />
          </Card>
        )
      )}
    </div>
  );
}
