/** A session of an organization's client: its turns, the gaps between them, and what was computed once more. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../api/client";
import { StateBadge } from "../../components/badge";
import { CopyButton } from "../../components/copy";
import { ErrorNotice, Loading, Notice } from "../../components/notice";
import { Page, Stats } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { count, milliseconds, percent } from "../../format/number";
import { type Money, useMoney } from "../../shell/money";
import { words } from "./diagnosis-of";

type Turn = Schemas["Turn"];
const route = getRouteApi("/signed/org/$organizationId/sessions/$sessionId");

export function SessionPage() {
  const { organizationId, sessionId } = route.useParams();
  const money = useMoney();
  const session = useQuery({
    queryKey: ["session", organizationId, sessionId],
    queryFn: () =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/sessions/{session_name}", {
          params: { path: { organization_id: organizationId, session_name: sessionId } },
        }),
      ),
  });
  const crumbs = [
    <Link key="requests" to="/org/$organizationId/requests" params={{ organizationId }}>
      Requests
    </Link>,
  ];
  const found = session.data;
  if (session.error || !found) {
    return (
      <Page title="Session" crumbs={crumbs}>
        {session.error ? (
          <ErrorNotice error={session.error} retry={() => void session.refetch()} />
        ) : (
          <Loading />
        )}
      </Page>
    );
  }
  return (
    <Page
      title={found.session}
      about="The turns of one session, named by its client, earliest first. Never their contents."
      crumbs={crumbs}
      actions={<CopyButton text={found.session} label="Copy the id" />}
    >
      <div className="stack">
        {found.has_more && (
          <Notice title="Earlier turns are left out">The sums cover only the turns shown.</Notice>
        )}
        <Stats
          figures={[
            { name: "Turns", value: count(found.turns) },
            { name: "Agents", value: count(found.agents) },
            {
              name: "Input",
              value: count(found.prompt_tokens),
              note: `${percent(found.prompt_tokens ? found.cached_tokens / found.prompt_tokens : null)} from the cache`,
            },
            { name: "Lost input", value: count(found.lost_tokens) },
            { name: "Cost", value: money(found.amount_micro) },
          ]}
        />
        <Table
          label="Turns"
          columns={columns(money, organizationId)}
          list={found.data}
          rowKey={(row) => row.request_id}
          csvName="session"
          empty={<p className="quiet">No turn.</p>}
        />
      </div>
    </Page>
  );
}

function columns(money: Money, organizationId: string): Column<Turn>[] {
  return [
    {
      id: "request_id",
      heading: "Request",
      value: (row) => row.request_id,
      cell: (row) => (
        <Link
          to="/org/$organizationId/requests/$requestId"
          params={{ organizationId, requestId: row.request_id }}
          className="mono"
          title={row.request_id}
        >
          {row.request_id.slice(-8)}
        </Link>
      ),
    },
    {
      id: "arrived_at",
      heading: "When",
      value: (row) => row.arrived_at,
      cell: (row) => <Time at={row.arrived_at} />,
    },
    {
      id: "gap_ms",
      heading: "After a gap of",
      right: true,
      value: (row) => row.gap_ms,
      cell: (row) => milliseconds(row.gap_ms),
    },
    { id: "agent", heading: "Agent", value: (row) => row.agent },
    {
      id: "decision",
      heading: "Outcome",
      lead: true,
      value: (row) => row.decision,
      cell: (row) => (
        <>
          <StateBadge state={row.decision} /> {row.status} {row.error_code}
        </>
      ),
    },
    ...(["prompt_tokens", "cached_tokens", "lost_tokens", "completion_tokens"] as const).map(
      (id): Column<Turn> => ({
        id,
        heading: HEADINGS[id],
        right: true,
        value: (row) => row[id],
        cell: (row) => count(row[id]),
      }),
    ),
    {
      id: "cause",
      heading: "Lost because",
      value: (row) => row.cause,
      cell: (row) => (row.cause ? words(row.cause) : "–"),
    },
    {
      id: "amount_micro",
      heading: "Cost",
      right: true,
      value: (row) => row.amount_micro,
      cell: (row) => money(row.amount_micro),
    },
    {
      id: "total_ms",
      heading: "In all",
      right: true,
      value: (row) => row.total_ms,
      cell: (row) => milliseconds(row.total_ms),
    },
  ];
}

const HEADINGS = {
  prompt_tokens: "In",
  cached_tokens: "Cached",
  lost_tokens: "Lost",
  completion_tokens: "Out",
} as const;
