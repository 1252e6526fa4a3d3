import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { readAll } from "../../../api/list";
import { useLive } from "../../../api/live";
import { Badge } from "../../../components/badge";
import { Chart } from "../../../components/chart";
import { Filters, SelectFilter, TextFilter } from "../../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../../components/notice";
import { Card, Page, Stats } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { amount } from "../../../format/money";
import { count, milliseconds, percent, short } from "../../../format/number";
import { TIERS } from "../../../shell/choices";
import { bucketOf, lengthMs, SERIES_PERIODS, type SeriesPeriod } from "./choices";

type Objective = Schemas["ObjectiveStanding"];
type Totals = Schemas["GoodputTotals"];
type Window = Schemas["SloWindow"];
const route = getRouteApi("/signed/operations/slo");
const BURNS = ["5m", "1h", "6h", "1d", "3d"];
const PERIOD_NAMES: Record<SeriesPeriod, string> = {
  "1h": "Last hour",
  "24h": "Last 24 hours",
  "7d": "Last 7 days",
  "28d": "Last 28 days",
};

export function Slo() {
  useLive(["slo"], [["slo"]]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const which = {
    ...(search.tier ? { tier: search.tier } : {}),
    ...(search.model ? { model: search.model } : {}),
  };
  const report = useQuery({
    queryKey: ["slo", "report", which],
    queryFn: () => read(api.GET("/admin/v1/slo", { params: { query: which } })),
  });
  const until = report.data?.added_up_until;
  return (
    <Page
      title="Objectives"
      about={
        until ? (
          <>
            What was promised and what was kept, of all organizations. Added up until <Time at={until} />.
          </>
        ) : (
          "What was promised and what was kept, of all organizations."
        )
      }
    >
      <div className="stack">
        <Filters>
          <SelectFilter
            label="Period"
            all={PERIOD_NAMES["24h"]}
            options={SERIES_PERIODS.filter((each) => each !== "24h")}
            names={PERIOD_NAMES}
            value={search.period === "24h" ? undefined : search.period}
            onChange={(period) => set({ period: period as SeriesPeriod | undefined })}
          />
          <SelectFilter
            label="Tier"
            all="Both"
            options={TIERS}
            value={search.tier}
            onChange={(tier) => set({ tier: tier as (typeof TIERS)[number] | undefined })}
          />
          <TextFilter label="Model" value={search.model} onChange={(model) => set({ model })} />
        </Filters>
        {report.error && <ErrorNotice error={report.error} retry={() => void report.refetch()} />}
        {!report.data && !report.error && <Loading lines={6} />}
        {report.data && <Objectives objectives={report.data.objectives} />}
        <Goodput period={search.period ?? "24h"} which={which} />
        <PoolCosts period={search.period ?? "24h"} />
      </div>
    </Page>
  );
}

function windowOf(objective: Objective, name: string): Window | undefined {
  return objective.windows.find((each) => each.window === name);
}

function Objectives({ objectives }: { objectives: Objective[] }) {
  const columns: Column<Objective>[] = [
    {
      id: "objective",
      heading: "Objective",
      value: (row) => `${row.tier} ${row.length}`,
      cell: (row) => (
        <>
          <span className="primary-cell">
            {row.tier}, {row.length} prompts
          </span>
          <br />
          <small className="quiet">
            first token {milliseconds(row.ttft_ms)}
            {row.tpot_ms !== null && ` · each further ${milliseconds(row.tpot_ms)}`}
            {row.itl_max_ms !== null && ` · longest gap ${milliseconds(row.itl_max_ms)}`}
          </small>
        </>
      ),
    },
    {
      id: "target",
      heading: "Promised",
      right: true,
      value: (row) => row.target,
      cell: (row) => percent(row.target, 2),
    },
    {
      id: "kept",
      heading: "Kept in 28 days",
      right: true,
      value: (row) => windowOf(row, "28d")?.attainment,
      cell: (row) => {
        const all = windowOf(row, "28d");
        return (
          <>
            {percent(all?.attainment, 2)}
            <br />
            <small className="quiet">{count(all?.counted)} requests</small>
          </>
        );
      },
    },
    {
      id: "budget_left",
      heading: "Error budget left",
      right: true,
      value: (row) => row.budget_left,
      cell: (row) => <Budget left={row.budget_left} />,
    },
    ...BURNS.map(
      (name): Column<Objective> => ({
        id: `burn_${name}`,
        heading: `Burn ${name}`,
        right: true,
        value: (row) => windowOf(row, name)?.burn_rate,
        cell: (row) => {
          const rate = windowOf(row, name)?.burn_rate;
          return rate == null ? "–" : `${rate.toFixed(rate < 10 ? 1 : 0)}×`;
        },
      }),
    ),
    {
      id: "burning",
      heading: "Alert",
      value: (row) => row.burning.map((each) => `${each.long}/${each.short}`).join(" "),
      cell: (row) =>
        row.burning.length === 0 ? (
          <Badge tone="good">none</Badge>
        ) : (
          row.burning.map((each) => (
            <Badge key={each.long} tone="bad">
              {`${each.long} and ${each.short} over ${each.threshold}×`}
            </Badge>
          ))
        ),
    },
  ];
  return (
    <Card
      title="Objectives"
      about="A burn of 1× spends the error budget exactly in 28 days. An alert is two windows that both burn too fast."
      actions={
        <Link className="button" to="/operations/diagnosis">
          Diagnose
        </Link>
      }
    >
      <Table
        label="Objectives"
        columns={columns}
        list={objectives}
        rowKey={(row) => `${row.tier}-${row.length}`}
        csvName="objectives"
        empty={
          <Empty title="No objectives in force">
            The worker puts those of the settings in force when it starts.
          </Empty>
        }
      />
    </Card>
  );
}

function Budget({ left }: { left: number | null }) {
  if (left === null) return <>–</>;
  const tone = left <= 0 ? "bad" : left < 0.25 ? "warn" : "good";
  return (
    <>
      <span>{percent(left, 0)}</span>
      <span className="meter" data-tone={tone} aria-hidden="true">
        <i style={{ width: `${Math.min(100, Math.max(0, left * 100))}%` }} />
      </span>
    </>
  );
}

function Goodput({ period, which }: { period: SeriesPeriod; which: object }) {
  const bucket = bucketOf(period);
  const query = useQuery({
    queryKey: ["slo", "goodput", period, which],
    queryFn: () => {
      const end = new Date();
      const start = new Date(end.getTime() - lengthMs(period));
      return readAll((cursor) =>
        read(
          api.GET("/admin/v1/slo/goodput", {
            params: {
              query: {
                limit: 100,
                cursor,
                start: start.toISOString(),
                end: end.toISOString(),
                bucket,
                ...which,
              },
            },
          }),
        ),
      );
    },
  });
  const rows = useMemo(
    () => [...(query.data ?? [])].sort((one, other) => (one.at ?? "").localeCompare(other.at ?? "")),
    [query.data],
  );
  const series = useMemo(() => {
    const part = (label: string, of: (row: Totals) => number) => ({
      label,
      values: rows.map((row) => (row.counted > 0 ? of(row) / row.counted : null)),
    });
    return [
      part("All kept", (row) => row.good),
      part("First token", (row) => row.ttft_kept),
      part("Each token", (row) => row.tpot_kept),
      part("Longest gap", (row) => row.gap_kept),
    ];
  }, [rows]);
  const times = useMemo(() => rows.map((row) => new Date(row.at ?? 0).getTime() / 1000), [rows]);
  if (query.error) return <ErrorNotice error={query.error} retry={() => void query.refetch()} />;
  if (!query.data) return <Loading lines={6} />;
  const sum = (of: (row: Totals) => number) => rows.reduce((all, row) => all + of(row), 0);
  const counted = sum((row) => row.counted);
  return (
    <Card title="Goodput" about="Of the requests that count, the part that kept what was promised.">
      <div className="stack">
        <Stats
          figures={[
            { name: "Goodput", value: counted > 0 ? percent(sum((row) => row.good) / counted, 2) : "–" },
            { name: "Counted", value: short(counted), note: `of ${short(sum((row) => row.requests))}` },
            { name: "Failed by us", value: short(sum((row) => row.failed)) },
            { name: "Shed", value: short(sum((row) => row.shed)) },
            { name: "Limited", value: short(sum((row) => row.limited)) },
            { name: "Left early", value: short(sum((row) => row.abandoned + row.superseded)) },
          ]}
        />
        {rows.length > 1 ? (
          <Chart label="Goodput" times={times} series={series} format={(value) => percent(value, 1)} />
        ) : (
          <p className="quiet">A chart is drawn once there are two {bucket}s with requests.</p>
        )}
      </div>
    </Card>
  );
}

function PoolCosts({ period }: { period: SeriesPeriod }) {
  const query = useQuery({
    queryKey: ["slo", "pools", period],
    queryFn: () => {
      const end = new Date();
      const start = new Date(end.getTime() - lengthMs(period));
      return read(
        api.GET("/admin/v1/slo/pools", {
          params: { query: { start: start.toISOString(), end: end.toISOString() } },
        }),
      );
    },
  });
  if (query.error) return <ErrorNotice error={query.error} retry={() => void query.refetch()} />;
  if (!query.data) return <Loading lines={4} />;
  return (
    <Card
      title="What good tokens cost"
      about="Replica-hours times the pool’s price, over the output tokens of requests that kept their promises."
    >
      <Table
        label="Cost of good tokens by pool"
        columns={[
          { id: "pool", heading: "Pool", value: (row) => row.pool },
          {
            id: "replica_hours",
            heading: "Replica-hours",
            right: true,
            value: (row) => row.replica_hours,
            cell: (row) => row.replica_hours.toFixed(2),
          },
          {
            id: "amount_micro",
            heading: "Cost",
            right: true,
            value: (row) => row.amount_micro,
            cell: (row) => (row.amount_micro === null ? "no price" : amount(row.amount_micro)),
          },
          {
            id: "good_tokens",
            heading: "Good tokens",
            right: true,
            value: (row) => row.good_tokens,
            cell: (row) => short(row.good_tokens),
          },
          {
            id: "per_million",
            heading: "Per million",
            right: true,
            value: (row) => row.per_million_good_tokens_micro,
            cell: (row) =>
              row.per_million_good_tokens_micro === null ? "–" : amount(row.per_million_good_tokens_micro),
          },
        ]}
        list={query.data.data}
        rowKey={(row) => row.pool}
        csvName="pool-costs"
        empty={
          <Empty title="No pool in this period">
            Give pools a <code>price_per_replica_hour</code> to see what good tokens cost.
          </Empty>
        }
      />
    </Card>
  );
}
