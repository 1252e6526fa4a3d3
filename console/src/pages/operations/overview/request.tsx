/** One request of any organization: where its time went, why that engine, what was cached. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../../api/client";
import { Badge } from "../../../components/badge";
import { ErrorNotice, Loading } from "../../../components/notice";
import { Card, Facts } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { count, milliseconds, percent } from "../../../format/number";
import { RequestView } from "../../tenants/request";

type Detail = Schemas["RequestDetail"];
type Placement = Schemas["Placement"];
type Candidate = Schemas["PlacementCandidate"];
const route = getRouteApi("/signed/operations/requests/$requestId");

export function RequestAnatomy() {
  const { requestId } = route.useParams();
  return (
    <RequestView
      requestId={requestId}
      crumbs={[
        <Link key="requests" to="/operations/requests">
          All requests
        </Link>,
      ]}
      more={(found) => (
        <>
          <Whereabouts found={found} />
          <Placements requestId={found.request_id} />
        </>
      )}
    />
  );
}

function Whereabouts({ found }: { found: Detail }) {
  const latency = found.latency;
  // refused before an engine had it: it ran nowhere
  if (!latency || (latency.pool === null && found.decision === "refused")) return null;
  const cached =
    latency.cached_tokens !== null && latency.prompt_tokens
      ? latency.cached_tokens / latency.prompt_tokens
      : null;
  return (
    <div className="grid-2">
      <Card title="Where it ran">
        <Facts
          facts={[
            [
              "Organization",
              <Link key="org" to="/org/$organizationId" params={{ organizationId: found.organization_id }}>
                {found.organization_id}
              </Link>,
            ],
            ["Pool", latency.pool ?? "none given"],
            ["Engine", latency.replica_id ?? "none given"],
            ["Engines tried", count(latency.attempts)],
            ["Release", latency.release],
            ["Side", latency.side ?? (latency.canary ? "canary" : "not split")],
            ["Times the engine took back memory", count(latency.retractions)],
            ["Trace", found.trace_id],
          ]}
        />
      </Card>
      <Card title="What was cached" about="Input tokens that the engine had already computed.">
        <Facts
          facts={[
            ["Input", `${count(latency.prompt_tokens)} tokens`],
            ["From the cache", `${count(latency.cached_tokens)} tokens (${percent(cached)})`],
            [
              "Newly computed",
              latency.prompt_tokens === null || latency.cached_tokens === null
                ? "–"
                : `${count(latency.prompt_tokens - latency.cached_tokens)} tokens${latency.engine_prefill_ms === null ? "" : ` in ${milliseconds(latency.engine_prefill_ms)}`}`,
            ],
          ]}
        />
      </Card>
    </div>
  );
}

function Placements({ requestId }: { requestId: string }) {
  const placements = useQuery({
    queryKey: ["request", requestId, "placements"],
    retry: false,
    queryFn: () =>
      read(
        api.GET("/admin/v1/requests/{request_id}/placements", {
          params: { path: { request_id: requestId } },
        }),
      ),
  });
  if (placements.error)
    return <ErrorNotice error={placements.error} retry={() => void placements.refetch()} />;
  if (!placements.data) return <Loading lines={4} />;
  if (placements.data.data.length === 0) {
    return (
      <Card title="Why that engine">
        <p className="quiet">
          The router has no record of its decision. It keeps the newest decisions until it restarts:
          router.explain_records sets their number, and router.explain_share the recorded share of requests. A
          request that a gateway refuses is never placed.
        </p>
      </Card>
    );
  }
  return placements.data.data.map((each) => <Why key={each.attempt} placement={each} />);
}

function Why({ placement }: { placement: Placement }) {
  const attempt = placement.attempt === 0 ? "" : `, attempt ${placement.attempt}`;
  const facts: [string, string][] = [
    ["Pool", placement.pool],
    ["Policy", placement.policy],
    [
      "Waited for a slot",
      `${milliseconds(placement.queued_ms)}${placement.queued_ms > 0 && placement.waited_for ? `: ${placement.waited_for}` : ""}`,
    ],
    ["First token (predicted)", milliseconds(placement.predicted_ms)],
    ["First token (measured)", milliseconds(placement.actual_ms)],
    ["Predicted delay compared with the best other engine", milliseconds(placement.regret_ms)],
    [
      "From the cache",
      `${count(placement.predicted_cached_tokens)} tokens predicted, ${count(placement.actual_cached_tokens)} reported by the engine`,
    ],
  ];
  if (placement.prefill) facts.push(["Prompt computed by", placement.prefill]);
  if (placement.split) facts.push(["One engine or a prefill/decode pair", placement.split]);
  if (placement.speculation) facts.push(["Drafts", placement.speculation]);
  if (placement.adapter) facts.push(["Adapter", placement.adapter]);
  const limited = placement.candidates.find((each) => each.chosen)?.limited_by;
  if (limited) facts.push(["Why its concurrency is not higher", limited]);
  return (
    <Card
      title={`Why that engine${attempt}`}
      about={
        placement.refused
          ? `No engine was chosen: ${placement.refused}.`
          : `${placement.chosen} was chosen: it had the lowest cost.`
      }
    >
      <div className="stack">
        <Facts facts={facts} />
        <Table
          label={`Engines considered${attempt}`}
          columns={CANDIDATES}
          list={placement.candidates}
          rowKey={(row) => row.replica_id}
          empty={<p className="quiet">No engine was considered.</p>}
        />
      </div>
    </Card>
  );
}

const CANDIDATES: Column<Candidate>[] = [
  {
    id: "replica_id",
    heading: "Engine",
    value: (row) => row.replica_id,
    cell: (row) => (
      <span className="row">
        {row.replica_id} {row.chosen && <Badge tone="accent">chosen</Badge>}
      </span>
    ),
  },
  { id: "cost", heading: "Cost", right: true, value: (row) => row.cost, cell: (row) => row.cost.toFixed(3) },
  {
    id: "predicted_ms",
    heading: "First token in",
    right: true,
    value: (row) => row.predicted_ms,
    cell: (row) => milliseconds(row.predicted_ms),
  },
  {
    id: "held_tokens",
    heading: "Cached",
    right: true,
    value: (row) => row.held_tokens,
    cell: (row) => count(row.held_tokens),
  },
  {
    id: "uncached_tokens",
    heading: "To compute",
    right: true,
    value: (row) => row.uncached_tokens,
    cell: (row) => count(row.uncached_tokens),
  },
  {
    id: "ahead_tokens",
    heading: "Tokens ahead",
    right: true,
    value: (row) => row.ahead_tokens,
    cell: (row) => count(row.ahead_tokens),
  },
  {
    id: "leases",
    heading: "Running",
    right: true,
    value: (row) => row.leases,
    cell: (row) => `${row.leases} of ${row.max_concurrency}`,
  },
];
