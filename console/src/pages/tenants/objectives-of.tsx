/** What was promised and what was kept of it: of an organization, or of all of them. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { api, read, type Schemas } from "../../api/client";
import { readAll } from "../../api/list";
import { Badge } from "../../components/badge";
import { Chart } from "../../components/chart";
import { Filters, SelectFilter } from "../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Page, Stats } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { budgetLeft } from "../../format/budget";
import { count, milliseconds, percent, short } from "../../format/number";
import { notAhead } from "../../format/time";
import { TIERS } from "../../shell/choices";
import { bucketOf, lengthMs, SERIES_PERIODS, type SeriesPeriod } from "../operations/serving/choices";
import { ModelFilter } from "./model-choice";

type Objective = Schemas["ObjectiveStanding"];
type Totals = Schemas["GoodputTotals"];
type Window = Schemas["SloWindow"];
const BURNS = ["5m", "1h", "6h", "1d", "3d"];
const PERIOD_NAMES: Record<SeriesPeriod, string> = {
  "1h": "Last hour",
  "24h": "Last 24 hours",
  "7d": "Last 7 days",
  "28d": "Last 28 days",
};

export interface ObjectivesSearch {
  period?: SeriesPeriod | undefined;
  tier?: (typeof TIERS)[number] | undefined;
  model?: string | undefined;
}

interface Which {
  tier?: (typeof TIERS)[number];
  model?: string;
}

export function ObjectivesPage({
  organizationId,
  whose,
  search,
  onChange,
  diagnosis,
  children,
}: {
  /** All organizations together, unless given. */
  organizationId?: string;
  whose: string;
  search: ObjectivesSearch;
  onChange: (part: Partial<ObjectivesSearch>) => void;
  /** Where it is told what makes requests slow. */
  diagnosis: string;
  children?: ReactNode;
}) {
  const which: Which = {
    ...(search.tier ? { tier: search.tier } : {}),
    ...(search.model ? { model: search.model } : {}),
  };
  const report = useQuery({
    queryKey: ["slo", organizationId ?? "deployment", "report", which],
    queryFn: () =>
      read(
        organizationId
          ? api.GET("/admin/v1/organizations/{organization_id}/slo", {
              params: { path: { organization_id: organizationId }, query: which },
            })
          : api.GET("/admin/v1/slo", { params: { query: which } }),
      ),
  });
  const until = report.data?.added_up_until;
  return (
    <Page
      title="Objectives"
      about={
        <>
          Objectives and their attainment, {whose}.
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
        <Filters>
          <SelectFilter
            label="Period"
            all={PERIOD_NAMES["1h"]}
            options={SERIES_PERIODS.filter((each) => each !== "1h")}
            names={PERIOD_NAMES}
            value={search.period === "1h" ? undefined : search.period}
            onChange={(period) => onChange({ period })}
          />
          <SelectFilter
            label="Tier"
            all="Both"
            options={TIERS}
            value={search.tier}
            onChange={(tier) => onChange({ tier })}
          />
          <ModelFilter
            organizationId={organizationId}
            value={search.model}
            onChange={(model) => onChange({ model })}
          />
        </Filters>
        {report.error && <ErrorNotice error={report.error} retry={() => void report.refetch()} />}
        {!report.data && !report.error && <Loading lines={6} />}
        {report.data && <Objectives report={report.data} diagnosis={diagnosis} />}
        <Goodput organizationId={organizationId} period={search.period ?? "1h"} which={which} />
        {children}
      </div>
    </Page>
  );
}

function windowOf(objective: Objective, name: string): Window | undefined {
  return objective.windows.find((each) => each.window === name);
}

function Objectives({ report, diagnosis }: { report: Schemas["SloReport"]; diagnosis: string }) {
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
            {row.tpot_ms !== null && ` · time per output token ${milliseconds(row.tpot_ms)}`}
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
            <small className="quiet">
              {count(all?.counted)} request{all?.counted === 1 ? "" : "s"}
              {row.promised_since !== null && (
                <>
                  {" "}
                  since <Time at={row.promised_since} />, when this objective began
                </>
              )}
            </small>
          </>
        );
      },
    },
    {
      id: "budget_left",
      heading: "Error budget left",
      right: true,
      value: (row) => row.budget_left,
      cell: (row) => <Budget objective={row} />,
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
        row.burning.length > 0 ? (
          row.burning.map((each) => (
            <Badge key={each.long} tone="bad">
              {`${each.long} and ${each.short} over ${each.threshold}×`}
            </Badge>
          ))
        ) : row.too_few.length > 0 ? (
          <>
            <Badge>none</Badge>
            <br />
            <small className="quiet">fewer than {report.least_bad} bad requests</small>
          </>
        ) : (
          <Badge tone="good">none</Badge>
        ),
    },
  ];
  return (
    <Card
      title="Objectives"
      about={`A burn rate of 1× spends the error budget in exactly 28 days. An alert fires when two windows both burn too fast and the longer one has at least ${report.least_bad} bad requests.`}
      actions={
        <Link className="button" to={diagnosis}>
          Diagnose
        </Link>
      }
    >
      <Table
        label="Objectives"
        columns={columns}
        list={report.objectives}
        rowKey={(row) => `${row.tier}-${row.length}`}
        csvName="objectives"
        empty={
          <Empty title="No objectives in force">
            The worker activates the objectives of the settings when it starts.
          </Empty>
        }
      />
    </Card>
  );
}

function Budget({ objective }: { objective: Objective }) {
  const told = budgetLeft(objective);
  const left = objective.budget_left;
  if (left === null || told === "–") return <>–</>;
  const tone = left <= 0 ? "bad" : left < 0.25 ? "warn" : "good";
  return (
    <>
      <span>{told}</span>
      <span className="meter" data-tone={tone} aria-hidden="true">
        <i style={{ width: `${Math.min(100, Math.max(0, left * 100))}%` }} />
      </span>
    </>
  );
}

function Goodput({
  organizationId,
  period,
  which,
}: {
  organizationId: string | undefined;
  period: SeriesPeriod;
  which: Which;
}) {
  const bucket = bucketOf(period);
  const query = useQuery({
    queryKey: ["slo", organizationId ?? "deployment", "goodput", period, which],
    queryFn: () => {
      const end = new Date();
      const start = new Date(end.getTime() - lengthMs(period));
      const asked = { limit: 100, start: start.toISOString(), end: end.toISOString(), bucket, ...which };
      return readAll((cursor) =>
        read(
          organizationId
            ? api.GET("/admin/v1/organizations/{organization_id}/slo/goodput", {
                params: { path: { organization_id: organizationId }, query: { ...asked, cursor } },
              })
            : api.GET("/admin/v1/slo/goodput", { params: { query: { ...asked, cursor } } }),
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
      part("Time per output token", (row) => row.tpot_kept),
      part("Longest gap", (row) => row.gap_kept),
    ];
  }, [rows]);
  const times = useMemo(() => rows.map((row) => new Date(row.at ?? 0).getTime() / 1000), [rows]);
  if (query.error) return <ErrorNotice error={query.error} retry={() => void query.refetch()} />;
  if (!query.data) return <Loading lines={6} />;
  const sum = (of: (row: Totals) => number) => rows.reduce((all, row) => all + of(row), 0);
  const counted = sum((row) => row.counted);
  return (
    <Card title="Goodput" about="The share of counted requests that met the objective.">
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
        {rows.length > 0 ? (
          <Chart label="Goodput" times={times} series={series} format={(value) => percent(value, 1)} />
        ) : (
          <p className="quiet">No request in this period.</p>
        )}
      </div>
    </Card>
  );
}
