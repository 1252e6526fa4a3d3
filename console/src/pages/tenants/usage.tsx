import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, read } from "../../api/client";
import { readAll } from "../../api/list";
import { useLive } from "../../api/live";
import { Chart } from "../../components/chart";
import { CheckField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Page, type Figure as Stat, Stats } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { change, count, percent, short, signedPercent } from "../../format/number";
import { PERIODS, TIERS, USAGE_FIGURES, USAGE_GROUP_CHOICES } from "../../shell/choices";
import { useMoney } from "../../shell/money";
import { useMyself } from "../../shell/session";
import { ModelFilter } from "./model-choice";
import { useProjects } from "./names";
import { PERIOD_NAMES, type Period, periodBefore, periodOf } from "./periods";
import {
  type Figure,
  type GroupTotals,
  MOST_SERIES,
  seriesOf,
  totalsOf,
  type UsageGroup,
} from "./usage-series";

const route = getRouteApi("/signed/org/$organizationId/usage");
const FIGURE_NAMES: Record<Figure, string> = {
  amount_micro: "Cost",
  requests: "Requests",
  prompt_tokens: "Input tokens",
  completion_tokens: "Output tokens",
};
const MOST_TOTALS = 5000;
const MOST_GROUPS = 20_000;

type Filter = Partial<Record<"project_id" | "key_id", string[]>> & {
  model?: string;
  tier?: (typeof TIERS)[number];
};

interface Asked {
  organizationId: string;
  period: Period;
  by: UsageGroup | undefined;
  filter: Filter;
  /** One total for the whole period. */
  whole?: boolean;
}

function useUsage({ organizationId, period, by, filter, whole = false }: Asked, enabled = true) {
  const start = period.start.toISOString();
  const end = period.end.toISOString();
  const bucket = whole ? "all" : period.bucket;
  return useQuery({
    queryKey: ["usage", organizationId, start, end, bucket, by, filter],
    enabled,
    queryFn: () =>
      readAll(
        (cursor) =>
          read(
            api.GET("/admin/v1/organizations/{organization_id}/usage", {
              params: {
                path: { organization_id: organizationId },
                query: {
                  limit: MOST_TOTALS,
                  cursor,
                  start,
                  end,
                  bucket,
                  ...(by ? { group_by: [by] } : {}),
                  ...filter,
                },
              },
            }),
          ),
        MOST_GROUPS,
      ),
  });
}

/** Totals of a period, its groups, the largest first, and what a chart draws of them. An organization has too many
 * projects and keys to ask for all of them by day: those are asked for once, and the largest by day. */
function useGroupedUsage(asked: Asked, figure: Figure, enabled = true, drawn = true) {
  const { by, filter } = asked;
  const many = by === "project" || by === "key";
  const series = useUsage({ ...asked, by: many ? undefined : by }, enabled);
  const whole = useUsage({ ...asked, whole: true }, enabled && many);
  const rows = (many ? whole : series).data;
  const groups = useMemo(() => totalsOf(rows ?? [], by, figure), [rows, by, figure]);
  const largest = groups.slice(0, MOST_SERIES).map((each) => each.group);
  const of = by === "key" ? { key_id: largest } : { project_id: largest };
  const top = useUsage(
    { ...asked, filter: { ...filter, ...of } },
    enabled && drawn && many && largest.length > 0,
  );
  return {
    groups,
    series: series.data,
    top: many ? (largest.length > 0 ? top.data : []) : series.data,
    error: series.error ?? whole.error ?? top.error,
    reload: () => void Promise.all([series, ...(many ? [whole, top] : [])].map((each) => each.refetch())),
    ready: series.data !== undefined && rows !== undefined,
  };
}

type Show = (figure: Figure, value: number) => string;

export function Usage() {
  const { organizationId } = route.useParams();
  const { can, currency } = useMyself();
  const money = useMoney();
  const show: Show = (figure, value) => (figure === "amount_micro" ? money(value) : count(value));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const name = search.period ?? "30d";
  const figure = search.figure ?? "amount_micro";
  const by = search.by === "nothing" ? undefined : (search.by ?? "model");
  // the day moves on; the hour does within "24h"
  const hour = Math.floor(Date.now() / 3_600_000);
  const period = useMemo(() => periodOf(name, new Date(hour * 3_600_000)), [name, hour]);
  const earlier = useMemo(() => periodBefore(name, period), [name, period]);
  const filter: Filter = {
    ...(search.project_id ? { project_id: [search.project_id] } : {}),
    ...(search.key_id ? { key_id: [search.key_id] } : {}),
    ...(search.model ? { model: search.model } : {}),
    ...(search.tier ? { tier: search.tier } : {}),
  };
  useLive(["usage"], [["usage", organizationId]]);
  const now = useGroupedUsage({ organizationId, period, by, filter }, figure);
  const compared = search.compare === true;
  const then = useGroupedUsage({ organizationId, period: earlier, by, filter }, figure, compared, false);
  const projects = useProjects(organizationId);
  const chart = useMemo(() => {
    const drawn = seriesOf(now.top ?? [], now.series ?? [], by, figure, period);
    if (!compared || !then.series) return drawn;
    const past = seriesOf([], then.series, undefined, figure, earlier);
    const values = drawn.times.map((_, at) => past.series[0]?.values[at] ?? null);
    return { ...drawn, series: [...drawn.series, { label: "period before", values, dashed: true }] };
  }, [now.top, now.series, then.series, by, figure, period, earlier, compared]);

  const sum = totalsOf(now.series ?? [], undefined, figure)[0];
  const sumBefore = totalsOf(then.series ?? [], undefined, figure)[0];
  const stat = (key: Figure): Stat => ({
    name: FIGURE_NAMES[key],
    value: show(key, sum?.[key] ?? 0),
    note: compared && then.ready ? signedPercent(change(sumBefore?.[key] ?? 0, sum?.[key] ?? 0)) : undefined,
  });
  return (
    <Page
      title="Usage"
      about="Billed usage, from the ledger’s totals. A request appears a few seconds after its end."
    >
      <Filters>
        <SelectFilter
          label="Period"
          options={PERIODS}
          names={PERIOD_NAMES}
          value={name}
          onChange={(value) => set({ period: value })}
        />
        <SelectFilter
          label="Show"
          options={USAGE_FIGURES}
          names={FIGURE_NAMES}
          value={figure}
          onChange={(value) => set({ figure: value })}
        />
        <SelectFilter
          label="Group by"
          options={USAGE_GROUP_CHOICES}
          value={search.by ?? "model"}
          onChange={(value) => set({ by: value })}
        />
        <SelectFilter
          label="Project"
          all="All"
          options={projects.data?.map((each) => each.id) ?? (search.project_id ? [search.project_id] : [])}
          names={Object.fromEntries((projects.data ?? []).map((each) => [each.id, each.name]))}
          value={search.project_id}
          onChange={(value) => set({ project_id: value, key_id: undefined })}
        />
        <ModelFilter
          organizationId={organizationId}
          value={search.model}
          onChange={(value) => set({ model: value })}
        />
        <SelectFilter
          label="Tier"
          all="All"
          options={TIERS}
          value={search.tier}
          onChange={(value) => set({ tier: value })}
        />
        {search.key_id && (
          <TextFilter label="Key’s id" value={search.key_id} onChange={(value) => set({ key_id: value })} />
        )}
        <CheckField
          label="Compare with the period before"
          checked={search.compare ?? false}
          onChange={(event) => set({ compare: event.currentTarget.checked || undefined })}
        />
      </Filters>
      {now.error || (compared && then.error) ? (
        <ErrorNotice error={now.error ?? then.error} retry={now.error ? now.reload : then.reload} />
      ) : !now.ready ? (
        <Loading lines={8} />
      ) : (
        <div className="stack">
          <Stats
            figures={[
              ...USAGE_FIGURES.map(stat),
              {
                name: "Input from the cache",
                value: sum && sum.prompt_tokens > 0 ? percent(sum.cached_tokens / sum.prompt_tokens) : "–",
              },
            ]}
          />
          {now.groups.length === 0 ? (
            <Card>
              <Empty title="No usage in this period">
                Choose a longer period or fewer filters. Usage appears seconds after a request
                {can("keys.write", organizationId) ? ": make a key in a project and send one." : "."}
              </Empty>
            </Card>
          ) : (
            <>
              <Card
                title={`${FIGURE_NAMES[figure]} by ${period.bucket}`}
                about={`${PERIOD_NAMES[name]}, in UTC.${figure === "amount_micro" && sum?.amount_micro === 0 ? " Requests for models without a price cost nothing." : ""}`}
              >
                <Chart
                  label={`${FIGURE_NAMES[figure]} by ${period.bucket}`}
                  kind={compared ? "lines" : "bars"}
                  times={chart.times}
                  series={chart.series}
                  format={(value) => (figure === "amount_micro" ? money(value) : short(value))}
                  whole
                />
              </Card>
              <Table
                label="Usage by group"
                list={now.groups}
                rowKey={(row) => row.group}
                csvName={`usage ${period.start.toISOString().slice(0, 10)} by ${by ?? "all"}`}
                columns={columnsOf(by, compared && then.ready ? then.groups : null, figure, show, currency)}
                empty={null}
              />
            </>
          )}
        </div>
      )}
    </Page>
  );
}

function columnsOf(
  by: UsageGroup | undefined,
  earlier: GroupTotals[] | null,
  figure: Figure,
  show: Show,
  currency: string,
): Column<GroupTotals>[] {
  const counted = (
    id: "requests" | "prompt_tokens" | "cached_tokens" | "completion_tokens",
    heading: string,
  ) => ({
    id,
    heading,
    right: true,
    value: (row: GroupTotals) => row[id],
    cell: (row: GroupTotals) => count(row[id]),
  });
  const was = (row: GroupTotals) => earlier?.find((each) => each.group === row.group)?.[figure] ?? 0;
  return [
    {
      id: by ?? "all",
      heading: by === undefined ? "All" : by.slice(0, 1).toUpperCase() + by.slice(1),
      value: (row) => row.name,
      cell: (row) => <span className="primary-cell">{row.name}</span>,
    },
    ...(by === "key"
      ? [{ id: "project", heading: "Project", value: (row: GroupTotals) => row.project }]
      : []),
    counted("requests", "Requests"),
    counted("prompt_tokens", "Input tokens"),
    counted("cached_tokens", "From the cache"),
    counted("completion_tokens", "Output tokens"),
    {
      id: "amount",
      heading: "Cost",
      right: true,
      value: (row) => row.amount_micro / 1_000_000,
      cell: (row) => show("amount_micro", row.amount_micro),
    },
    { id: "currency", heading: "Currency", value: () => currency, csvOnly: true },
    ...(earlier === null
      ? []
      : [
          {
            id: "change",
            heading: `${FIGURE_NAMES[figure]} before`,
            right: true,
            value: was,
            cell: (row: GroupTotals) => (
              <>
                {show(figure, was(row))}{" "}
                <span className="quiet">({signedPercent(change(was(row), row[figure]))})</span>
              </>
            ),
          } satisfies Column<GroupTotals>,
        ]),
  ];
}
