import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useLive } from "../../api/live";
import { Chart } from "../../components/chart";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Page, Stats } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { count, milliseconds, percent, short } from "../../format/number";
import { COMPLETION_GROUPS, COMPLETION_PERIODS } from "../../shell/choices";
import { useMyself } from "../../shell/session";
import { useOrganization } from "../../shell/shell";
import { useProjects } from "./names";
import { PERIOD_NAMES, periodOf } from "./periods";

type Totals = Schemas["AutocompleteTotals"];
type Group = Schemas["AutocompleteGroup"];
type CompletionText = Schemas["CompletionText"];
const route = getRouteApi("/signed/org/$organizationId/completions");

/** What became of completions in editors. */
export function Completions() {
  const { organizationId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  useLive(["completions"], [["completions", organizationId]]);
  const projects = useProjects(organizationId);
  const { period: name = "7d", by = "language", ...filters } = search;
  const day = Math.floor(Date.now() / 86_400_000);
  const period = useMemo(() => periodOf(name, new Date(day * 86_400_000)), [name, day]);
  const keyOf = (group_by: Group[]) => [
    "completions",
    organizationId,
    period.start.toISOString(),
    group_by,
    filters,
  ];
  const asked = (group_by: Group[]) => ({
    queryKey: keyOf(group_by),
    queryFn: () => read(total(group_by, undefined)),
  });
  const total = (group_by: Group[], cursor: string | undefined) =>
    api.GET("/admin/v1/organizations/{organization_id}/autocomplete", {
      params: {
        path: { organization_id: organizationId },
        query: {
          ...(group_by.length > 0 ? { limit: 100, cursor } : {}),
          start: period.start.toISOString(),
          end: period.end.toISOString(),
          group_by,
          ...filters,
        },
      },
    });
  const sum = useQuery(asked([]));
  const days = useQuery(asked(["day"]));
  // the first page has the groups with most completions; of days, the newest
  const groups = useList([...keyOf([by]), "pages"], (cursor) => read(total([by], cursor)));
  const chart = useMemo(() => {
    const rows = [...(days.data?.data ?? [])].reverse();
    return {
      times: rows.map((row) => Date.parse(`${row.day}T00:00:00Z`) / 1000),
      series: [
        { label: "accepted of shown", values: rows.map((row) => row.acceptance_rate) },
        {
          label: "kept of offered characters",
          values: rows.map((row) =>
            row.characters_offered > 0 ? row.characters_kept / row.characters_offered : null,
          ),
        },
      ],
    };
  }, [days.data]);
  const projectName = (id: string) => projects.data?.find((each) => each.id === id)?.name ?? id;
  const all = sum.data?.data[0];
  const error = sum.error ?? days.error;
  return (
    <Page
      title="Completions"
      about="Autocompletions that editors reported as shown, accepted and kept. Updated every minute."
    >
      <div className="stack">
        <Filters>
          <SelectFilter
            label="Period"
            options={COMPLETION_PERIODS}
            names={PERIOD_NAMES}
            value={name}
            onChange={(value) => set({ period: value })}
          />
          <SelectFilter
            label="Group by"
            options={COMPLETION_GROUPS}
            value={by}
            onChange={(value) => set({ by: value })}
          />
          <SelectFilter
            label="Project"
            all="All"
            options={projects.data?.map((each) => each.id) ?? (search.project_id ? [search.project_id] : [])}
            names={Object.fromEntries((projects.data ?? []).map((each) => [each.id, each.name]))}
            value={search.project_id}
            onChange={(project_id) => set({ project_id })}
          />
          <TextFilter label="Model" value={search.model} onChange={(model) => set({ model })} />
          <TextFilter label="Language" value={search.language} onChange={(language) => set({ language })} />
          <TextFilter label="Editor" value={search.client} onChange={(client) => set({ client })} />
        </Filters>
        {error ? (
          <ErrorNotice
            error={error}
            retry={() => void Promise.all([sum, days].map((each) => each.refetch()))}
          />
        ) : !all || !days.data ? (
          <Loading lines={8} />
        ) : (
          <>
            <Stats figures={figuresOf(all)} />
            {chart.times.length > 1 && (
              <Card title="By day" about={`${PERIOD_NAMES[name]}, in UTC.`}>
                <Chart
                  label="Accepted and kept by day"
                  times={chart.times}
                  series={chart.series}
                  format={(value) => percent(value)}
                />
              </Card>
            )}
            <Card title={`By ${by}`}>
              <Table
                label="Completions by group"
                columns={columnsOf(by, projectName)}
                list={groups}
                rowKey={(row) => String(groupOf(row, by))}
                csvName={`completions by ${by}`}
                empty={
                  <Empty title="No completions in this period">
                    Completions appear within a minute. Connect an editor with a key of a project, or try one
                    in the playground.
                  </Empty>
                }
              />
            </Card>
          </>
        )}
        <Texts organizationId={organizationId} project={search.project_id} projectName={projectName} />
      </div>
    </Page>
  );
}

function figuresOf(all: Totals) {
  return [
    { name: "Completions", value: short(all.completions), note: `${short(all.empty)} empty` },
    { name: "Shown", value: short(all.shown) },
    { name: "Accepted", value: percent(all.acceptance_rate), note: `${short(all.accepted)} of them` },
    {
      name: "Characters kept",
      value: all.characters_offered > 0 ? percent(all.characters_kept / all.characters_offered) : "–",
    },
    { name: "Typed on", value: short(all.abandoned + all.superseded), note: "before its end" },
    { name: "Latency p95", value: milliseconds(all.latency_p95_ms) },
  ];
}

function groupOf(row: Totals, by: Group): string | null {
  return by === "project" ? row.project_id : row[by];
}

function columnsOf(by: Group, projectName: (id: string) => string): Column<Totals>[] {
  const counted = (id: "completions" | "empty" | "shown" | "accepted" | "dismissed", heading: string) => ({
    id,
    heading,
    right: true,
    value: (row: Totals) => row[id],
    cell: (row: Totals) => count(row[id]),
  });
  const timed = (id: "latency_p50_ms" | "latency_p95_ms", heading: string) => ({
    id,
    heading,
    right: true,
    value: (row: Totals) => row[id],
    cell: (row: Totals) => milliseconds(row[id]),
  });
  const named = (row: Totals) => {
    const group = groupOf(row, by);
    return by === "project" && group !== null ? projectName(group) : group;
  };
  return [
    {
      id: by,
      heading: by === "client" ? "Editor" : by.slice(0, 1).toUpperCase() + by.slice(1),
      value: named,
      cell: (row) => <span className="primary-cell">{named(row)}</span>,
    },
    counted("completions", "Completions"),
    counted("empty", "Empty"),
    counted("shown", "Shown"),
    counted("accepted", "Accepted"),
    counted("dismissed", "Dismissed"),
    {
      id: "acceptance_rate",
      heading: "Accepted of shown",
      right: true,
      value: (row) => row.acceptance_rate,
      cell: (row) => percent(row.acceptance_rate),
    },
    {
      id: "kept",
      heading: "Characters kept",
      right: true,
      value: (row) => row.characters_kept,
      cell: (row) => short(row.characters_kept),
    },
    timed("latency_p50_ms", "p50"),
    timed("latency_p95_ms", "p95"),
  ];
}

/** Of one's own organization alone: the API shows them to nobody else. */
function Texts({
  organizationId,
  project,
  projectName,
}: {
  organizationId: string;
  project: string | undefined;
  projectName: (id: string) => string;
}) {
  const myself = useMyself();
  const organization = useOrganization(organizationId);
  const may = myself.organization.id === organizationId && myself.can("prompts.read", organizationId);
  useLive(may ? ["requests"] : [], may ? [["completions", organizationId, "texts"]] : []);
  const list = useList(
    ["completions", organizationId, "texts", project],
    (cursor) =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/completion-texts", {
          params: {
            path: { organization_id: organizationId },
            query: { limit: 100, cursor, ...(project ? { project_id: project } : {}) },
          },
        }),
      ),
    { enabled: may },
  );
  if (!may) return null;
  const columns: Column<CompletionText>[] = [
    {
      id: "request_id",
      heading: "Request",
      value: (row) => row.request_id,
      cell: (row) => (
        <Link
          className="mono"
          to="/org/$organizationId/requests/$requestId"
          params={{ organizationId, requestId: row.request_id }}
        >
          {row.request_id}
        </Link>
      ),
    },
    {
      id: "recorded_at",
      heading: "When",
      value: (row) => row.recorded_at,
      cell: (row) => <Time at={row.recorded_at} />,
    },
    { id: "project", heading: "Project", value: (row) => projectName(row.project_id) },
    {
      id: "prefix",
      heading: "Before the gap",
      value: (row) => row.prefix,
      cell: (row) => <code className="wrap">…{row.prefix.slice(-160)}</code>,
    },
    {
      id: "completion",
      heading: "Filled with",
      value: (row) => row.completion,
      cell: (row) =>
        row.completion === null ? (
          <span className="quiet">passed on unchanged</span>
        ) : (
          <code className="wrap">{row.completion.slice(0, 160)}</code>
        ),
    },
  ];
  return (
    <Card title="Texts" about="Only people of this organization with the right to read prompts see this.">
      <Table
        label="Completions’ texts"
        columns={columns}
        list={list}
        rowKey={(row) => row.request_id}
        empty={
          organization.data?.store_prompts ? (
            <Empty title="No texts yet">Texts appear a few seconds after a completion.</Empty>
          ) : (
            <Empty
              title="Texts are not kept"
              action={
                <Link className="button" to="/org/$organizationId/settings" params={{ organizationId }}>
                  Settings
                </Link>
              }
            >
              An owner of the organization can turn this on.
            </Empty>
          )
        }
      />
    </Card>
  );
}
