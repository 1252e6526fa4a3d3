import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, read, type Schemas } from "../../api/client";
import { Badge, StateBadge } from "../../components/badge";
import { CopyButton } from "../../components/copy";
import { ErrorNotice, Loading, Notice } from "../../components/notice";
import { Card, Facts, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { FullTime } from "../../components/time";
import { count, milliseconds } from "../../format/number";
import { type Money, useMoney } from "../../shell/money";
import { useMyself } from "../../shell/session";
import { KeyName } from "./key-name";
import { labelOf } from "./limit-names";
import { shownLimit } from "./limits-of";
import { Waterfall } from "./waterfall";

type Attempt = Schemas["Attempt"];
const route = getRouteApi("/signed/org/$organizationId/requests/$requestId");

/** What a 429 says of the rule that refused, as traces keep it. */
interface RefusingRule {
  level?: string;
  subject_id?: string;
  tier?: string | null;
  counter?: string;
  limit?: number;
  remaining?: number | null;
  requested?: number;
  frees_in_ms?: number | null;
  frees_at?: string | null;
}

export function RequestPage() {
  const { organizationId, requestId } = route.useParams();
  return (
    <RequestView
      requestId={requestId}
      crumbs={[
        <Link key="requests" to="/org/$organizationId/requests" params={{ organizationId }}>
          Requests
        </Link>,
      ]}
    />
  );
}

interface RequestViewProps {
  requestId: string;
  crumbs: ReactNode[];
  /** What operators are told besides, behind the waterfall. */
  more?: (found: Schemas["RequestDetail"]) => ReactNode;
}

/** What happened to one request, for whoever may see it. */
export function RequestView({ requestId, crumbs, more }: RequestViewProps) {
  const money = useMoney();
  const { currency } = useMyself();
  const request = useQuery({
    queryKey: ["request", requestId],
    queryFn: () =>
      read(api.GET("/admin/v1/requests/{request_id}", { params: { path: { request_id: requestId } } })),
  });
  if (request.error || !request.data) {
    return (
      <Page title="Request" crumbs={crumbs}>
        {request.error ? (
          <ErrorNotice error={request.error} retry={() => void request.refetch()} />
        ) : (
          <Loading />
        )}
      </Page>
    );
  }
  const found = request.data;
  const rule = found.rule as RefusingRule | null;
  const latency = found.latency;
  return (
    <Page
      title={found.request_id}
      crumbs={crumbs}
      actions={<CopyButton text={found.request_id} label="Copy the id" />}
    >
      <div className="stack">
        {rule && <Why rule={rule} />}
        {!rule && found.reason && (
          <Notice tone="warn" title={found.error_code ?? "Not served"}>
            {found.reason}
          </Notice>
        )}
        <div className="grid-2">
          <Card title="What happened">
            <Facts
              facts={[
                [
                  "Outcome",
                  <span key="was" className="row">
                    {found.decision && <StateBadge state={found.decision} />} {found.status ?? ""}{" "}
                    {found.error_code ?? ""}
                  </span>,
                ],
                ["When", found.recorded_at && <FullTime key="at" at={found.recorded_at} />],
                ["Endpoint", found.endpoint],
                ["Model", found.model && `${found.model}${found.tier ? ` (${found.tier})` : ""}`],
                ["Class", found.service_class],
                ["Cost", money(found.amount_micro)],
                ["Client’s id", found.client_request_id],
                [
                  "Session",
                  found.session && (
                    <Link
                      key="session"
                      to="/org/$organizationId/sessions/$sessionId"
                      params={{ organizationId: found.organization_id, sessionId: found.session }}
                    >
                      {found.session}
                    </Link>
                  ),
                ],
                ["Agent of the session", found.session_agent],
                ["Begun by", found.session_parent],
                [
                  "Key",
                  found.project_id && found.key_id && (
                    <KeyName
                      key="key"
                      organizationId={found.organization_id}
                      projectId={found.project_id}
                      keyId={found.key_id}
                    />
                  ),
                ],
                ["Key’s id", found.key_id && <code key="id">{found.key_id}</code>],
                ["Shares the response of request", found.served_from],
              ]}
            />
          </Card>
          <Card title="Latency">
            {latency && (found.decision !== "refused" || latency.ttft_ms !== null) ? (
              <Facts
                facts={[
                  ["First token", measured(latency.ttft_ms, milliseconds)],
                  ["Time per output token", measured(latency.tpot_ms, milliseconds)],
                  ["Longest gap", measured(latency.itl_max_ms, milliseconds)],
                  ["Gaps over 100 ms", measured(latency.gaps_over_100ms, count)],
                  ["Client did not read for", measured(latency.client_stall_ms, milliseconds)],
                  ["Engine’s queue", measured(latency.engine_queue_ms, milliseconds)],
                  ["Engine’s prefill", measured(latency.engine_prefill_ms, milliseconds)],
                  ["Schema compilation", measured(latency.engine_grammar_ms, milliseconds)],
                  [
                    "Input",
                    latency.prompt_tokens !== null &&
                      `${count(latency.prompt_tokens)} tokens${latency.length ? ` (${latency.length})` : ""}${latency.cached_tokens === null ? "" : `, ${count(latency.cached_tokens)} from the cache`}`,
                  ],
                  [
                    "Output",
                    latency.completion_tokens !== null && `${count(latency.completion_tokens)} tokens`,
                  ],
                ]}
              />
            ) : (
              <p className="quiet">
                {found.decision !== "refused"
                  ? "There is no record of it."
                  : found.attempts.some((each) => each.finish !== "not_placed")
                    ? "The engine refused the request before the first token. The client’s response has the reason."
                    : "The request was refused before an engine got it."}
              </p>
            )}
          </Card>
        </div>
        <Card title="Where the time went" about={`${milliseconds(found.total_ms)} in all.`}>
          <Waterfall phases={found.phases_ms} explained />
        </Card>
        {more?.(found)}
        {found.counters && found.counters.length > 0 && <Counters counters={found.counters} />}
        {found.attempts.length > 0 && (
          <Table
            label="Attempts"
            columns={attemptsIn(money, currency)}
            list={found.attempts}
            rowKey={(row) => String(row.attempt)}
            csvName={`attempts of ${found.request_id}`}
            empty={null}
          />
        )}
      </div>
    </Page>
  );
}

/** null: it was not measured, and is not shown. */
const measured = (value: number | null, told: (value: number) => string) =>
  value === null ? null : told(value);

function Why({ rule }: { rule: RefusingRule }) {
  const money = useMoney();
  const counter = rule.counter ?? "";
  return (
    <Notice tone="warn" title={`Limited by ${labelOf(counter).toLowerCase()} of the ${rule.level ?? "rule"}`}>
      <p>
        The limit is {shownLimit(counter, rule.limit, money)}
        {rule.tier ? ` for ${rule.tier}` : ""}; {shownLimit(counter, rule.remaining ?? 0, money)} was left,
        and the request needed {shownLimit(counter, rule.requested, money)}.{" "}
        {rule.frees_at ? (
          <>
            Room again at <FullTime at={rule.frees_at} />.
          </>
        ) : rule.frees_in_ms != null ? (
          `Room again ${milliseconds(rule.frees_in_ms)} later.`
        ) : (
          ""
        )}
      </p>
    </Notice>
  );
}

interface CounterState {
  level?: string;
  tier?: string | null;
  counter?: string;
  limit?: number;
  remaining?: number;
}

function Counters({ counters }: { counters: CounterState[] }) {
  const money = useMoney();
  return (
    <Card title="Counters at that time">
      <Table
        label="Counters"
        list={counters.map((each, place) => ({ ...each, place }))}
        rowKey={(row) => String(row.place)}
        columns={[
          { id: "level", heading: "Level", value: (row) => row.level },
          { id: "tier", heading: "Tier", value: (row) => row.tier ?? "all tiers" },
          { id: "counter", heading: "Counter", value: (row) => labelOf(row.counter ?? "") },
          {
            id: "limit",
            heading: "Limit",
            right: true,
            value: (row) => row.limit,
            cell: (row) => shownLimit(row.counter ?? "", row.limit, money),
          },
          {
            id: "remaining",
            heading: "Remaining",
            right: true,
            value: (row) => row.remaining,
            cell: (row) => shownLimit(row.counter ?? "", row.remaining, money),
          },
        ]}
        empty={null}
      />
    </Card>
  );
}

const attemptsIn = (money: Money, currency: string): Column<Attempt>[] => [
  { id: "attempt", heading: "Attempt", right: true, value: (row) => row.attempt },
  { id: "engine", heading: "Engine", value: (row) => row.engine ?? "not told" },
  { id: "outcome", heading: "Outcome", lead: true, value: (row) => row.outcome },
  { id: "finish", heading: "Finish", value: (row) => row.error_code ?? row.finish },
  {
    id: "prompt_tokens",
    heading: "Input",
    right: true,
    value: (row) => row.prompt_tokens,
    cell: (row) => count(row.prompt_tokens),
  },
  {
    id: "cached_tokens",
    heading: "From the cache",
    right: true,
    value: (row) => row.cached_tokens,
    cell: (row) => count(row.cached_tokens),
  },
  {
    id: "completion_tokens",
    heading: "Output",
    right: true,
    value: (row) => row.completion_tokens,
    cell: (row) => count(row.completion_tokens),
  },
  {
    id: "billed",
    heading: "Billed",
    value: (row) => (row.billed ? "yes" : "no"),
    cell: (row) => <Badge tone={row.billed ? "accent" : undefined}>{row.billed ? "yes" : "no"}</Badge>,
  },
  {
    id: "amount_micro",
    heading: "Cost",
    right: true,
    value: (row) => row.amount_micro / 1_000_000,
    cell: (row) => money(row.amount_micro),
  },
  { id: "currency", heading: "Currency", value: () => currency, csvOnly: true },
];
