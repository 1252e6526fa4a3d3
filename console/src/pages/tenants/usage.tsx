import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, read } from "../../api/client";
import { readAll } from "../../api/list";
import { Chart } from "../../components/chart";
import { CheckField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Page, type Figure as Stat, Stats } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { amount } from "../../format/money";
import { change, count, percent, short, signedPercent } from "../../format/number";
import { PERIODS, TIERS, USAGE_FIGURES, USAGE_GROUPS } from "../../shell/choices";
import { useMyself } from "../../shell/session";
import { useKeys, useProjects } from "./names";
import { PERIOD_NAMES, type Period, periodBefore, periodOf } from "./periods";
import { type Figure, type GroupTotals, seriesOf, totalsOf, type UsageGroup } from "./usage-series";

const route = getRouteApi("/signed/org/$organizationId/usage");
const FIGURE_NAMES: Record<Figure, string> = {
  amount_micro: "Cost",
  requests: "Requests",
  prompt_tokens: "Input tokens",
  completion_tokens: "Output tokens",
};
const FRESH_EVERY_MS = 3_000;

interface Asked {
  organizationId: string;
  period: Period;
  by: UsageGroup | undefined;
  filters: Partial<Record<"project_id" | "key_id" | "model", string>> & { tier?: (typeof TIERS)[number] };
}

function useUsage({ organizationId, period, by, filters }: Asked, enabled = true) {
  const start = period.start.toISOString();
  const end = period.end.toISOString();
  return useQuery({
    queryKey: ["usage", organizationId, start, end, period.bucket, by, filters],
    enabled,
    refetchInterval: FRESH_EVERY_MS,
    queryFn: () =>
      readAll((cursor) =>
        read(
          api.GET("/admin/v1/organizations/{organization_id}/usage", {
            params: {
              path: { organization_id: organizationId },
              query: {
                limit: 100,
                cursor,
                start,
                end,
                bucket: period.bucket,
                ...(by ? { group_by: [by] } : {}),
                ...filters,
              },
            },
          }),
        ),
      ),
  });
}

const show = (figure: Figure, value: number) => (figure === "amount_micro" ? amount(value) : count(value));
const showShort = (figure: Figure, value: number) =>
  figure === "amount_micro" ? amount(value) : short(value);

export function Usage() {
  const { organizationId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { can } = useMyself();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const name = search.period ?? "30d";
  const figure = search.figure ?? "amount_micro";
  const by = search.by;
  // the day moves on; the hour does within "24h"
  const hour = Math.floor(Date.now() / 3_600_000);
  const period = useMemo(() => periodOf(name, new Date(hour * 3_600_000)), [name, hour]);
  const earlier = useMemo(() => periodBefore(name, period), [name, period]);
  const filters = {
    ...(search.project_id ? { project_id: search.project_id } : {}),
    ...(search.key_id ? { key_id: search.key_id } : {}),
    ...(search.model ? { model: search.model } : {}),
    ...(search.tier ? { tier: search.tier } : {}),
  };
  const now = useUsage({ organizationId, period, by, filters });
  const then = useUsage({ organizationId, period: earlier, by, filters }, search.compare === true);
  const projects = useProjects(organizationId);
  const keys = useKeys(organizationId, search.project_id, can("keys.read", organizationId) && by === "key");
  // a file downloaded before the names are there would hold ids
  const unnamed = (by === "project" || by === "key") && (projects.isLoading || keys.isLoading);
  const nameOf = (group: string) => {
    const named =
      by === "project"
        ? projects.data?.find((each) => each.id === group)?.name
        : by === "key"
          ? keys.data?.find((each) => each.id === group)?.name
          : undefined;
    return named ?? (by === undefined ? "all" : group);
  };
  const groups = totalsOf(now.data ?? [], by, figure);
  const groupsBefore = totalsOf(then.data ?? [], by, figure);
  // biome-ignore lint/correctness/useExhaustiveDependencies: names come from the two queries
  const chart = useMemo(() => {
    const drawn = seriesOf(now.data ?? [], by, figure, period, nameOf);
    if (!search.compare || !then.data) return drawn;
    const past = seriesOf(then.data, undefined, figure, earlier, () => "");
    const values = drawn.times.map((_, at) => past.series[0]?.values[at] ?? null);
    return { ...drawn, series: [...drawn.series, { label: "period before", values, dashed: true }] };
  }, [now.data, then.data, by, figure, period, earlier, search.compare, projects.data, keys.data]);

  const sum = totalsOf(now.data ?? [], undefined, figure)[0];
  const sumBefore = totalsOf(then.data ?? [], undefined, figure)[0];
  const stat = (key: Figure): Stat => ({
    name: FIGURE_NAMES[key],
    value: sum ? show(key, sum[key]) : "0",
    note:
      search.compare && then.data ? signedPercent(change(sumBefore?.[key] ?? 0, sum?.[key] ?? 0)) : undefined,
  });
  return (
    <Page
      title="Usage"
      about="What was billed, from the ledger’s totals. A request is here a few seconds after it ends."
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
          all="nothing"
          options={USAGE_GROUPS}
          value={by}
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
        <TextFilter label="Model" value={search.model} onChange={(value) => set({ model: value })} />
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
      {now.error ? (
        <ErrorNotice error={now.error} retry={() => void now.refetch()} />
      ) : !now.data || unnamed ? (
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
          {groups.length === 0 ? (
            <Card>
              <Empty title="No usage in this period">
                Choose a longer period or fewer filters. Make a key in a project and send a request: it shows
                here.
              </Empty>
            </Card>
          ) : (
            <>
              <Card
                title={`${FIGURE_NAMES[figure]} by ${period.bucket}`}
                about={`${PERIOD_NAMES[name]}, in UTC.`}
              >
                <Chart
                  label={`${FIGURE_NAMES[figure]} by ${period.bucket}`}
                  kind={search.compare ? "lines" : "bars"}
                  times={chart.times}
                  series={chart.series}
                  format={(value) => showShort(figure, value)}
                />
              </Card>
              <Table
                label="Usage by group"
                list={groups}
                rowKey={(row) => row.group}
                csvName={`usage ${period.start.toISOString().slice(0, 10)} by ${by ?? "all"}`}
                columns={columnsOf(by, nameOf, search.compare ? groupsBefore : null, figure)}
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
  nameOf: (group: string) => string,
  earlier: GroupTotals[] | null,
  figure: Figure,
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
      value: (row) => nameOf(row.group),
      cell: (row) => <span className="primary-cell">{nameOf(row.group)}</span>,
    },
    counted("requests", "Requests"),
    counted("prompt_tokens", "Input tokens"),
    counted("cached_tokens", "From the cache"),
    counted("completion_tokens", "Output tokens"),
    {
      id: "amount",
      heading: "Cost",
      right: true,
      value: (row) => row.amount_micro / 1_000_000,
      cell: (row) => amount(row.amount_micro),
    },
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
