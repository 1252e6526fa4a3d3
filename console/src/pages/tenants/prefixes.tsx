import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, read, type Schemas } from "../../api/client";
import { readAll, useList } from "../../api/list";
import { useLive } from "../../api/live";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Chart } from "../../components/chart";
import { Filters, TextFilter } from "../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Page, Stats } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { count, percent, short } from "../../format/number";
import { useMyself } from "../../shell/session";
import { words } from "./diagnosis-of";
import { byTemplate, sharesByHour, type Template } from "./prefix-shares";

type Drop = Schemas["PrefixDrop"];
type Text = Schemas["PrefixText"];
type Group = Schemas["PrefixGroup"];
const MOST_TOTALS = 5000;
const MOST_ROWS = 20_000;
const route = getRouteApi("/signed/org/$organizationId/prefixes");

export function Prefixes() {
  const { organizationId } = route.useParams();
  const myself = useMyself();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  useLive(["prefixes"], [["prefixes", organizationId]]);
  const which = {
    ...(search.model ? { model: search.model } : {}),
    ...(search.template ? { template: search.template } : {}),
  };
  const totals = (query: { bucket: "hour" | "all"; group_by: Group[] }) => ({
    queryKey: ["prefixes", organizationId, "totals", query, which],
    queryFn: () =>
      readAll(
        (cursor) =>
          read(
            api.GET("/admin/v1/organizations/{organization_id}/prefix-totals", {
              params: {
                path: { organization_id: organizationId },
                query: { limit: MOST_TOTALS, cursor, ...query, ...which },
              },
            }),
          ),
        MOST_ROWS,
      ),
  });
  const shares = useQuery(totals({ bucket: "hour", group_by: [] }));
  const causes = useQuery(totals({ bucket: "all", group_by: ["template", "model", "cause", "part"] }));
  const error = shares.error ?? causes.error;
  // texts are shown to the organization's own members only, an operator is none of them
  const mayRead = myself.organization.id === organizationId && myself.can("prompts.read", organizationId);
  const rows = shares.data ?? [];
  const chart = useMemo(() => sharesByHour(shares.data ?? []), [shares.data]);
  const sum = (of: (row: (typeof rows)[number]) => number) => rows.reduce((all, row) => all + of(row), 0);
  const prompt = sum((row) => row.prompt_tokens);
  const cached = sum((row) => row.cached_tokens);
  return (
    <Page
      title="Prefix contract"
      about="The share of your prompts that repeats the beginning of an earlier prompt and need not be computed again, over the last seven days."
    >
      <div className="stack">
        <Filters>
          <TextFilter label="Model" value={search.model} onChange={(model) => set({ model })} />
          <TextFilter label="Template" value={search.template} onChange={(template) => set({ template })} />
        </Filters>
        {error && (
          <ErrorNotice error={error} retry={() => void Promise.all([shares.refetch(), causes.refetch()])} />
        )}
        {!(shares.data && causes.data) && !error && <Loading lines={6} />}
        {shares.data && rows.length > 0 && (
          <Card
            title="Reusable share by hour"
            about="Shares of prompt tokens: reusable, and reused by engines. Prompts shorter than a block do not count as reusable, though engines may reuse them."
          >
            <div className="stack">
              <Stats
                figures={[
                  { name: "Prompt tokens", value: short(prompt) },
                  {
                    name: "Reusable",
                    value: prompt > 0 ? percent(sum((row) => row.reusable_tokens) / prompt) : "–",
                  },
                  {
                    name: "Reused",
                    value: cached > 0 ? percent(cached / prompt) : "none reported",
                    note: cached > 0 ? undefined : "by the engines",
                  },
                  { name: "Requests", value: short(sum((row) => row.requests)) },
                ]}
              />
              {chart.times.length > 1 && (
                <Chart
                  label="Reusable share by hour"
                  times={chart.times}
                  series={chart.series}
                  format={(value) => percent(value)}
                />
              )}
            </div>
          </Card>
        )}
        {causes.data && (
          <Templates rows={byTemplate(causes.data)} onTemplate={(template) => set({ template })} />
        )}
        <Drops organizationId={organizationId} />
        {mayRead && <Texts organizationId={organizationId} template={search.template} />}
      </div>
    </Page>
  );
}

function Templates({ rows, onTemplate }: { rows: Template[]; onTemplate: (template: string) => void }) {
  const columns: Column<Template>[] = [
    {
      id: "template",
      heading: "Template",
      value: (row) => row.template,
      cell: (row) => (
        <Button kind="plain" size="small" onClick={() => onTemplate(row.template)}>
          {row.template}
        </Button>
      ),
    },
    { id: "model", heading: "Model", value: (row) => row.model },
    {
      id: "requests",
      heading: "Requests",
      right: true,
      value: (row) => row.requests,
      cell: (row) => count(row.requests),
    },
    {
      id: "reusable",
      heading: "Reusable",
      right: true,
      value: (row) => row.reusable,
      cell: (row) => percent(row.reusable),
    },
    {
      id: "cached",
      heading: "Reused",
      right: true,
      value: (row) => row.cached,
      cell: (row) => percent(row.cached),
    },
    { id: "cause", heading: "Most often ended by", value: (row) => words(row.cause) },
    { id: "part", heading: "Where", value: (row) => row.part },
  ];
  return (
    <Card
      title="Templates"
      about="Requests of one project, endpoint and model with the same start of tools and system prompt."
    >
      <Table
        label="Templates"
        columns={columns}
        list={rows}
        rowKey={(row) => `${row.template}-${row.model}`}
        csvName="prefix-templates"
        empty={
          <Empty title="No prompts in the last seven days">
            The figures appear within minutes of the first requests.
          </Empty>
        }
      />
    </Card>
  );
}

function Drops({ organizationId }: { organizationId: string }) {
  const list = useList(["prefixes", organizationId, "drops"], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/prefix-drops", {
        params: { path: { organization_id: organizationId }, query: { limit: 100, cursor } },
      }),
    ),
  );
  const columns: Column<Drop>[] = [
    {
      id: "began_at",
      heading: "Since",
      value: (row) => row.began_at,
      cell: (row) => <Time at={row.began_at} />,
    },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => (row.ended_at ? "over" : "lasts"),
      cell: (row) => <Badge tone={row.ended_at ? "good" : "bad"}>{row.ended_at ? "over" : "lasts"}</Badge>,
    },
    {
      id: "share",
      heading: "Share",
      right: true,
      value: (row) => row.share,
      cell: (row) => (
        <>
          {percent(row.share)} <small className="quiet">usually {percent(row.usual_share)}</small>
        </>
      ),
    },
    { id: "cause", heading: "Because of", value: (row) => (row.cause ? words(row.cause) : null) },
    {
      id: "where",
      heading: "First differs in",
      value: (row) =>
        row.part
          ? `${words(row.part)}${row.part_number === null ? "" : ` ${row.part_number}`}${row.differing_token === null ? "" : `, token ${row.differing_token}`}`
          : null,
    },
    { id: "template", heading: "Template", value: (row) => row.template },
    { id: "model", heading: "Model", value: (row) => row.model },
  ];
  return (
    <Card title="Drops" about="Times at which the reusable share fell to half of its usual value or less.">
      <Table
        label="Drops"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="prefix-drops"
        empty={
          <Empty title="No drop">
            A webhook for <code>prefix.share_dropped</code> reports the next drop.
          </Empty>
        }
      />
    </Card>
  );
}

function Texts({ organizationId, template }: { organizationId: string; template: string | undefined }) {
  const list = useList(["prefixes", organizationId, "texts", template], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/prefix-texts", {
        params: {
          path: { organization_id: organizationId },
          query: { limit: 100, cursor, ...(template ? { template } : {}) },
        },
      }),
    ),
  );
  if (list.rows.length === 0 && !list.error) return null; // where no project keeps prompts
  const columns: Column<Text>[] = [
    {
      id: "recorded_at",
      heading: "When",
      value: (row) => row.recorded_at,
      cell: (row) => <Time at={row.recorded_at} />,
    },
    { id: "cause", heading: "Because of", value: (row) => words(row.cause) },
    {
      id: "earlier",
      heading: "Before",
      value: (row) => row.earlier,
      cell: (row) => <code className="wrap">{row.earlier ?? "–"}</code>,
    },
    {
      id: "later",
      heading: "Now",
      value: (row) => row.later,
      cell: (row) => <code className="wrap">{row.later}</code>,
    },
  ];
  return (
    <Card title="Where they differ" about="From projects that allow prompts to be kept.">
      <Table
        label="Where prompts differ"
        columns={columns}
        list={list}
        rowKey={(row) => row.request_id}
        empty={<Empty title="None" />}
      />
    </Card>
  );
}
