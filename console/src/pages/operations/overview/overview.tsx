/** How the deployment does: traffic, latencies, goodput, refusals, cache, spend and error budgets. */

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useLive } from "../../../api/live";
import { Badge } from "../../../components/badge";
import { Chart } from "../../../components/chart";
import { Filters, SelectFilter } from "../../../components/filters";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Card, Page, Stats } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { budgetLeft } from "../../../format/budget";
import { count, milliseconds, percent, perSecond, short } from "../../../format/number";
import { notAhead } from "../../../format/time";
import { TIERS } from "../../../shell/choices";
import { Cents } from "../../../shell/money";
import { PLACES } from "../../../shell/troubles";
import { useTroubleReport } from "../../../shell/use-troubles";
import { ModelFilter } from "../../tenants/model-choice";
import { OVERVIEW_PERIODS, type OverviewSpan, PERIOD_NAMES, spanOf } from "./choices";
import { GetStarted } from "./get-started";

type Figures = Schemas["ServingFigures"];
type Series = Schemas["ServingSeries"];
type Objective = Schemas["ObjectiveStanding"];
type Measure = "ttft_ms" | "tpot_ms" | "itl_max_ms";
const route = getRouteApi("/signed/operations");
const MINUTE_MS = 60_000;

interface Which {
  tier?: (typeof TIERS)[number];
  model?: string;
}

export function DeploymentOverview() {
  useLive(["slo", "usage"], [["serving"], ["slo"], ["usage", "deployment"], ["troubles"]]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const period = search.period ?? "1h";
  const minute = useMinute();
  const span = useMemo(() => spanOf(period, minute * MINUTE_MS), [period, minute]);
  const which: Which = {
    ...(search.tier ? { tier: search.tier } : {}),
    ...(search.model ? { model: search.model } : {}),
  };
  const total = useServing("total", span, which);
  const until = total.data?.added_up_until;
  return (
    <Page
      title="Deployment"
      about={
        <>
          Requests of all organizations.
          {until && (
            <>
              {" "}
              Updated <Time at={notAhead(until)} />.
            </>
          )}
        </>
      }
    >
      <div className="stack">
        <Troubles />
        <Filters>
          <SelectFilter
            label="Period"
            options={OVERVIEW_PERIODS}
            names={PERIOD_NAMES}
            value={period}
            onChange={(chosen) => set({ period: chosen === "1h" ? undefined : chosen })}
          />
          <SelectFilter
            label="Tier"
            all="Both"
            options={TIERS}
            value={search.tier}
            onChange={(tier) => set({ tier })}
          />
          <ModelFilter value={search.model} onChange={(model) => set({ model })} />
        </Filters>
        {total.error && <ErrorNotice error={total.error} retry={() => void total.refetch()} />}
        {!total.data && !total.error && <Loading lines={8} />}
        {total.data && <Sums series={total.data} span={span} which={which} />}
        {total.data && total.data.data.length > 0 && <Charts span={span} which={which} />}
        <Budgets which={which} />
        {total.data && total.data.data.length > 0 && (
          <>
            <Parts span={span} which={which} />
            <ByTime span={span} which={which} />
          </>
        )}
      </div>
    </Page>
  );
}

/** What needs attention now, or that nothing does, above the charts. */
function Troubles() {
  const { troubles, known } = useTroubleReport();
  if (troubles.length === 0) return known && <Notice tone="good">{known}</Notice>;
  return (
    <Notice tone={troubles[0]?.tone ?? "warn"} title="Needs attention now">
      <ul className="lines">
        {troubles.map((each) => (
          <li key={each.text}>
            {each.text}{" "}
            {each.explained && (
              <>
                <Link to={each.explained}>{PLACES[each.explained]}</Link>{" "}
              </>
            )}
            <Link to={each.place}>{PLACES[each.place]}</Link>
          </li>
        ))}
      </ul>
    </Notice>
  );
}

/** Minutes since 1970, while the page is open. */
function useMinute(): number {
  const [minute, setMinute] = useState(minuteNow);
  useEffect(() => {
    const timer = setInterval(() => setMinute(minuteNow()), 5_000);
    return () => clearInterval(timer);
  }, []);
  return minute;
}

function minuteNow(): number {
  return Math.floor(Date.now() / MINUTE_MS);
}

function useServing(what: "total" | "series" | "parts", span: OverviewSpan, which: Which) {
  return useQuery({
    queryKey: ["serving", what, span.start, span.end, which],
    placeholderData: (before: Series | undefined) => before,
    queryFn: () =>
      read(
        api.GET("/admin/v1/serving", {
          params: {
            query: {
              start: span.start,
              end: span.end,
              bucket: what === "series" ? span.bucket : "all",
              ...(what === "parts" ? { group_by: ["tier", "model", "pool"] } : {}),
              ...which,
            },
          },
        }),
      ),
  });
}

function useSpend(span: OverviewSpan, which: Which) {
  return useQuery({
    queryKey: ["usage", "deployment", span.start, span.end, which],
    queryFn: async () => {
      const { data } = await read(
        api.GET("/admin/v1/usage", {
          params: { query: { start: span.start, end: span.end, bucket: "all", ...which } },
        }),
      );
      return data[0]?.amount_micro ?? 0;
    },
  });
}

function Sums({ series, span, which }: { series: Series; span: OverviewSpan; which: Which }) {
  const spend = useSpend(span, which);
  const sum = series.data[0];
  if (!sum) return <Nothing filtered={which.tier !== undefined || which.model !== undefined} />;
  return (
    <>
      <Stats
        figures={[
          { name: "Requests", value: short(sum.requests), note: perSecond(sum.requests_per_s) },
          {
            name: "Output tokens",
            value: short(sum.completion_tokens),
            note: perSecond(sum.completion_tokens_per_s),
          },
          { name: "From the cache", value: percent(sum.cache_hit_share), note: "of input" },
          {
            name: "Billed",
            value: <Cents micro={spend.data} />,
            note: "full hours only",
          },
        ]}
      />
      <Stats
        figures={[
          { name: "Goodput", value: percent(sum.goodput, 2), note: `of ${short(sum.counted)}` },
          { name: "Shed", value: percent(sum.shed_share, 2), note: count(sum.shed) },
          { name: "Failed", value: percent(sum.failed_share, 2), note: count(sum.failed) },
          { name: "Limited", value: percent(sum.limited_share, 2), note: count(sum.limited) },
        ]}
      />
    </>
  );
}

const EVER_MS = 28 * 24 * 60 * MINUTE_MS;

/** No request: in this period, or none yet at all. */
function Nothing({ filtered }: { filtered: boolean }) {
  const ever = useQuery({
    queryKey: ["serving", "ever"],
    enabled: !filtered,
    queryFn: () =>
      read(
        api.GET("/admin/v1/serving", {
          params: { query: { start: new Date(Date.now() - EVER_MS).toISOString(), bucket: "all" } },
        }),
      ),
  });
  if (ever.isLoading) return <Loading lines={4} />;
  if (ever.data?.data.length === 0) return <GetStarted />;
  return (
    <Card>
      <Empty title="No requests in this period">Choose a longer period or clear the filters.</Empty>
    </Card>
  );
}

function Charts({ span, which }: { span: OverviewSpan; which: Which }) {
  const series = useServing("series", span, which);
  const [at, times] = useMemo(() => {
    const rows = new Map((series.data?.data ?? []).map((row) => [Date.parse(row.at ?? "") / 1000, row]));
    return [(time: number) => rows.get(time), span.times];
  }, [series.data, span.times]);
  if (series.error) return <ErrorNotice error={series.error} retry={() => void series.refetch()} />;
  if (!series.data) return <Loading lines={8} />;
  const every = span.bucket;
  const values = (of: (row: Figures) => number | null) =>
    times.map((time) => {
      const row = at(time);
      return row ? of(row) : null;
    });
  const zeroed = (of: (row: Figures) => number) => times.map((time) => ofRow(at(time), of));
  const latency = (measure: Measure) =>
    (["p50", "p95", "p99"] as const).map((name) => ({
      label: name,
      values: values((row) => row[measure]?.[name] ?? null),
    }));
  const how =
    series.data.percentiles === "exact"
      ? "Exact: each value was measured on a real request."
      : `From histograms: each value is within ${percent(series.data.percentiles_within)} of the exact one.`;
  return (
    <div className="grid-2">
      <Card title={`Requests by ${every}`} about="By outcome, in UTC.">
        <Chart
          label={`Requests by ${every}`}
          kind="bars"
          times={times}
          format={count}
          whole
          series={[
            {
              label: "answered or abandoned",
              values: zeroed((row) => row.requests - row.failed - row.limited),
            },
            { label: "limited", values: zeroed((row) => row.limited) },
            { label: "shed", values: zeroed((row) => row.shed) },
            { label: "other failures", values: zeroed((row) => row.failed - row.shed), bad: true },
          ]}
        />
      </Card>
      <Card title="Output tokens per second" about={`Mean of each ${every}.`}>
        <Chart
          label="Output tokens per second"
          times={times}
          format={(value) => (value === 0 ? "0" : value < 10 ? value.toPrecision(2) : short(value))}
          series={[{ label: "tokens/s", values: zeroed((row) => row.completion_tokens_per_s ?? 0) }]}
        />
      </Card>
      <Card title="Time to first token" about={how}>
        <Chart label="Time to first token" times={times} format={milliseconds} series={latency("ttft_ms")} />
      </Card>
      <Card
        title="Time per output token"
        about={`The mean time of a request’s tokens after the first (TPOT); percentiles over requests. ${how}`}
      >
        <Chart
          label="Time per output token"
          times={times}
          format={milliseconds}
          series={latency("tpot_ms")}
        />
      </Card>
      <Card title="Longest gap between tokens" about={`The longest gap of each request. ${how}`}>
        <Chart
          label="Longest gap between tokens"
          times={times}
          format={milliseconds}
          series={latency("itl_max_ms")}
        />
      </Card>
      <Card
        title="Goodput and cache"
        about="Goodput: requests that met their objective. Cache: input tokens from the cache."
      >
        <Chart
          label="Goodput and cache hits"
          times={times}
          format={percent}
          series={[
            { label: "goodput", values: values((row) => row.goodput) },
            { label: "from the cache", values: values((row) => row.cache_hit_share), dashed: true },
            { label: "shed", values: values((row) => row.shed_share) },
          ]}
        />
      </Card>
    </div>
  );
}

/** The figures of the charts, last, for they are long. */
function ByTime({ span, which }: { span: OverviewSpan; which: Which }) {
  const series = useServing("series", span, which);
  if (!series.data) return null;
  return (
    <section className="stack-tight">
      <h2>By {span.bucket}</h2>
      <Table
        label={`Figures by ${span.bucket}`}
        columns={BY_TIME}
        list={[...series.data.data].reverse()}
        rowKey={(row) => row.at ?? ""}
        csvName={`serving by ${span.bucket}`}
        empty={null}
      />
    </section>
  );
}

function ofRow(row: Figures | undefined, of: (row: Figures) => number): number {
  return row ? of(row) : 0;
}

function percentile(measure: Measure, name: "p50" | "p95" | "p99", heading: string): Column<Figures> {
  return {
    id: `${measure}_${name}`,
    heading: `${heading} ${name}`,
    right: true,
    value: (row) => row[measure]?.[name],
    cell: (row) => milliseconds(row[measure]?.[name]),
  };
}

function share(id: "goodput" | "shed_share" | "cache_hit_share", heading: string): Column<Figures> {
  return { id, heading, right: true, value: (row) => row[id], cell: (row) => percent(row[id]) };
}

const NUMBERS: Column<Figures>[] = [
  {
    id: "requests",
    heading: "Requests",
    right: true,
    value: (row) => row.requests,
    cell: (row) => count(row.requests),
  },
  share("goodput", "Goodput"),
  share("shed_share", "Shed"),
  share("cache_hit_share", "From the cache"),
  percentile("ttft_ms", "p50", "TTFT"),
  percentile("ttft_ms", "p95", "TTFT"),
  percentile("ttft_ms", "p99", "TTFT"),
  percentile("tpot_ms", "p50", "TPOT"),
  percentile("tpot_ms", "p95", "TPOT"),
  percentile("tpot_ms", "p99", "TPOT"),
];

const BY_TIME: Column<Figures>[] = [
  {
    id: "at",
    heading: "From (UTC)",
    value: (row) => row.at,
    cell: (row) => (row.at ?? "").slice(0, 16).replace("T", " "),
  },
  ...NUMBERS,
];

const BY_PART: Column<Figures>[] = [
  { id: "tier", heading: "Tier", value: (row) => row.tier, csvOnly: true },
  {
    id: "model",
    heading: "Model",
    value: (row) => row.model || "not known",
    cell: (row) => (
      <>
        {row.model || "not known"}
        <br />
        <small className="quiet">{row.tier}</small>
      </>
    ),
  },
  {
    id: "pool",
    heading: "Pool",
    value: (row) => row.pool,
    cell: (row) =>
      row.pool ? (
        <Link to="/operations/requests" search={{ pool: row.pool, model: row.model ?? "" }}>
          {row.pool}
        </Link>
      ) : (
        <span className="quiet">placed on none</span>
      ),
  },
  ...NUMBERS,
];

function Parts({ span, which }: { span: OverviewSpan; which: Which }) {
  const parts = useServing("parts", span, which);
  if (parts.error) return <ErrorNotice error={parts.error} retry={() => void parts.refetch()} />;
  if (!parts.data) return <Loading lines={4} />;
  return (
    <section className="stack-tight">
      <div className="row-apart">
        <h2>By tier, model and pool</h2>
        <span className="row">
          <Link to="/operations/requests" search={which}>
            These requests
          </Link>
          <Link to="/operations/fleet">The fleet</Link>
          <Link to="/operations/diagnosis" search={which.tier ? { tier: which.tier } : {}}>
            Why requests are slow
          </Link>
        </span>
      </div>
      <Table
        label="By tier, model and pool"
        columns={BY_PART}
        list={parts.data.data}
        rowKey={(row) => `${row.tier} ${row.model} ${row.pool}`}
        csvName="serving by part"
        empty={null}
      />
    </section>
  );
}

const BUDGETS: Column<Objective>[] = [
  { id: "objective", heading: "Objective", value: (row) => `${row.tier}, ${row.length} prompts` },
  {
    id: "ttft_ms",
    heading: "First token within",
    right: true,
    value: (row) => row.ttft_ms,
    cell: (row) => milliseconds(row.ttft_ms),
  },
  {
    id: "target",
    heading: "Promised",
    right: true,
    value: (row) => row.target,
    cell: (row) => percent(row.target, 2),
  },
  {
    id: "attainment",
    heading: "Met in the last 28 days",
    right: true,
    value: (row) => kept(row),
    cell: (row) => percent(kept(row), 2),
  },
  {
    id: "budget_left",
    heading: "Budget left",
    right: true,
    value: (row) => row.budget_left,
    cell: (row) => budgetLeft(row),
  },
  {
    id: "burning",
    heading: "Burning too fast",
    value: (row) => row.burning.length,
    cell: (row) =>
      row.burning.length > 0 ? <Badge tone="bad">yes</Badge> : <span className="quiet">no</span>,
  },
];

function kept(row: Objective): number | null {
  return row.windows.find((each) => each.window === "28d")?.attainment ?? null;
}

function Budgets({ which }: { which: Which }) {
  const report = useQuery({
    queryKey: ["slo", "deployment", "report", which],
    queryFn: () => read(api.GET("/admin/v1/slo", { params: { query: which } })),
  });
  if (report.error) return <ErrorNotice error={report.error} retry={() => void report.refetch()} />;
  if (!report.data) return <Loading lines={4} />;
  return (
    <section className="stack-tight">
      <div className="row-apart">
        <h2>Error budgets</h2>
        <Link to="/operations/slo" search={which}>
          Objectives and burn
        </Link>
      </div>
      <Table
        label="Error budgets"
        columns={BUDGETS}
        list={report.data.objectives}
        rowKey={(row) => `${row.tier} ${row.length}`}
        empty={
          <Empty title="No objectives yet">
            A worker activates the objectives in the settings (slo.objectives) when it starts.
          </Empty>
        }
      />
    </section>
  );
}
