/** Whether the ledger agrees with what engines counted, and totals with their events. */
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { Badge } from "../../../components/badge";
import { Filters, SelectFilter, TextFilter } from "../../../components/filters";
import { Empty, Notice } from "../../../components/notice";
import { Page, Stats } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count } from "../../../format/number";
import {
  ALIKE,
  type Apart,
  added,
  adviceOn,
  apartTold,
  byEngine,
  drifts,
  type EngineDrift,
  signed,
  type Window,
} from "./drift";
import "./quality.css";

type Verification = Schemas["UsageVerification"];
const route = getRouteApi("/signed/operations/reconciliation");

export function Reconciliation() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const filters = {
    ...(search.replica ? { replica_id: search.replica } : {}),
    ...(search.drift === undefined ? {} : { drift: search.drift }),
  };
  const windows = useList(["reconciliations", filters], (cursor) =>
    read(api.GET("/admin/v1/reconciliations", { params: { query: { limit: 100, cursor, ...filters } } })),
  );
  const verifications = useList(["usage-verifications"], (cursor) =>
    read(api.GET("/admin/v1/usage-verifications", { params: { query: { limit: 100, cursor } } })),
  );
  useLive(["reconciliations"], [["reconciliations"], ["usage-verifications"]]);
  const engines = useMemo(() => byEngine(windows.rows), [windows.rows]);
  const newest = verifications.rows[0];
  const wrong = newest ? wrongIn(newest) : 0;
  const drifting = windows.rows.filter(drifts).length;
  const loaded = windows.hasMore
    ? `of the newest ${count(windows.rows.length)}`
    : `of ${count(windows.rows.length)}`;
  return (
    <Page
      title="Reconciliation"
      about="Engines count their own tokens. Each window’s count is compared with the bounds from the ledger."
    >
      <div className="stack">
        <Stats
          figures={[
            { name: "Windows that differ", value: count(drifting), note: loaded },
            {
              name: "Difference in prompt tokens",
              value: apartTold(windows.rows.reduce((sum, each) => added(sum, each.prompt_drift), ALIKE)),
            },
            {
              name: "Difference in completion tokens",
              value: apartTold(windows.rows.reduce((sum, each) => added(sum, each.completion_drift), ALIKE)),
            },
            { name: "Last compared", value: <Time at={windows.rows[0]?.checked_at} none="not yet" /> },
            {
              name: "Totals verified",
              value: <Time at={newest?.checked_at} none="not yet" />,
              note: newest && (wrong === 0 ? "all agree" : `${count(wrong)} wrong`),
            },
          ]}
        />
        {wrong > 0 && newest && (
          <Notice tone="bad" title="Totals differ from their events">
            {count(newest.wrong_hours)} hours, {count(newest.wrong_days)} days and{" "}
            {count(newest.wrong_amounts)} amounts from {newest.from_day} to {newest.until_day}. The events are
            right. Find out who wrote to the totals, then recompute them (docs/runbooks/drift.md).
          </Notice>
        )}
        {windows.rows.length > 0 && (
          <section className="stack-tight">
            <h2>By engine</h2>
            <Table
              label="By engine"
              columns={engineColumns((replica) => void navigate({ search: (old) => ({ ...old, replica }) }))}
              list={engines}
              rowKey={(row) => row.replica_id}
              csvName="drift by engine"
              empty={null}
              foot={
                windows.hasMore ? `in the newest ${count(windows.rows.length)} windows` : "in all windows"
              }
            />
          </section>
        )}
        <section>
          <h2 className="visually-hidden">Windows</h2>
          <Filters>
            <TextFilter
              label="Engine"
              value={search.replica}
              onChange={(replica) => void navigate({ search: (old) => ({ ...old, replica }), replace: true })}
            />
            <SelectFilter
              label="Show"
              all="All"
              options={["differ", "agree"] as const}
              value={search.drift === undefined ? undefined : search.drift ? "differ" : "agree"}
              onChange={(which) =>
                void navigate({
                  search: (old) => ({ ...old, drift: which === undefined ? undefined : which === "differ" }),
                  replace: true,
                })
              }
            />
          </Filters>
          <Table
            label="Windows"
            columns={WINDOWS}
            list={windows}
            rowKey={(row) => `${row.replica_id} ${row.window_from}`}
            csvName="reconciliations"
            empty={
              search.replica || search.drift !== undefined ? (
                <Empty title={search.drift ? "Everything agrees" : "No such window"}>
                  {search.drift ? "None of these windows differs from the ledger." : "Clear the filters."}
                </Empty>
              ) : (
                <Empty title="No comparison yet">
                  The worker samples engines’ counters every five minutes (
                  <code>worker.ledger.reconcile_every_s</code>) and compares at least an hour (
                  <code>worker.ledger.window_s</code>), ten minutes after its end (
                  <code>worker.ledger.settle_s</code>). The first comparison comes about 75 minutes after the
                  start. Engines without token counters are not compared.
                </Empty>
              )
            }
          />
        </section>
        <section className="stack-tight">
          <h2>Totals compared with their events</h2>
          <Table
            label="Verifications"
            columns={VERIFICATIONS}
            list={verifications}
            rowKey={(row) => row.checked_at}
            csvName="usage verifications"
            empty={
              <Empty title="Totals are not verified yet">
                The worker verifies totals once a day; <code>slipstream usage verify</code> verifies them now.
              </Empty>
            }
          />
        </section>
      </div>
    </Page>
  );
}

const wrongIn = (row: Verification) => row.wrong_hours + row.wrong_days + row.wrong_amounts;

function Drift({ tokens }: { tokens: number }) {
  return tokens === 0 ? (
    <span className="quiet">0</span>
  ) : (
    <Badge tone={tokens > 0 ? "bad" : "warn"}>{signed(tokens)}</Badge>
  );
}

function ApartBadge({ apart }: { apart: Apart }) {
  return (
    <span className="row-right">
      {apart.plus === 0 && apart.minus === 0 ? (
        <span className="quiet">0</span>
      ) : (
        [apart.plus, apart.minus]
          .filter((each) => each !== 0)
          .map((each) => <Drift key={each} tokens={each} />)
      )}
    </span>
  );
}

function engineColumns(choose: (replica: string) => void): Column<EngineDrift>[] {
  return [
    {
      id: "replica_id",
      heading: "Engine",
      value: (row) => row.replica_id,
      cell: (row) => (
        <button type="button" className="link-button" onClick={() => choose(row.replica_id)}>
          {row.replica_id}
        </button>
      ),
    },
    {
      id: "windows",
      heading: "Windows",
      right: true,
      value: (row) => row.windows,
      cell: (row) => count(row.windows),
    },
    {
      id: "drifting",
      heading: "Differ",
      right: true,
      value: (row) => row.drifting,
      cell: (row) => count(row.drifting),
    },
    {
      id: "engine_tokens",
      heading: "Tokens counted",
      right: true,
      value: (row) => row.engine_tokens,
      cell: (row) => count(row.engine_tokens),
    },
    {
      id: "prompt_drift",
      heading: "Prompt difference",
      right: true,
      value: (row) => apartTold(row.prompt),
      cell: (row) => <ApartBadge apart={row.prompt} />,
    },
    {
      id: "completion_drift",
      heading: "Completion difference",
      right: true,
      value: (row) => apartTold(row.completion),
      cell: (row) => <ApartBadge apart={row.completion} />,
    },
    {
      id: "last_until",
      heading: "Up to",
      value: (row) => row.last_until,
      cell: (row) => <Time at={row.last_until} />,
    },
  ];
}

const between = (least: number, most: number) =>
  least === most ? count(least) : `${count(least)} to ${count(most)}`;

const WINDOWS: Column<Window>[] = [
  {
    id: "replica_id",
    heading: "Engine",
    value: (row) => row.replica_id,
    cell: (row) => <span className="primary-cell">{row.replica_id}</span>,
  },
  {
    id: "window_from",
    heading: "Window",
    value: (row) => row.window_from,
    cell: (row) => (
      <span className="nowrap-cell" title={`${row.window_from} to ${row.window_until}`}>
        {row.window_from.slice(0, 10)}
        <br />
        {row.window_from.slice(11, 16)}–{row.window_until.slice(11, 16)} UTC
      </span>
    ),
  },
  {
    id: "prompt",
    heading: "Prompt: engine, ledger",
    right: true,
    value: (row) => row.engine_prompt_tokens,
    cell: (row) => (
      <>
        {count(row.engine_prompt_tokens)}
        <br />
        <span className="quiet">{between(row.ledger_prompt_tokens_min, row.ledger_prompt_tokens_max)}</span>
      </>
    ),
  },
  {
    id: "prompt_drift",
    heading: "Difference",
    right: true,
    value: (row) => row.prompt_drift,
    cell: (row) => <Drift tokens={row.prompt_drift} />,
  },
  {
    id: "completion",
    heading: "Completion: engine, ledger",
    right: true,
    value: (row) => row.engine_completion_tokens,
    cell: (row) => (
      <>
        {count(row.engine_completion_tokens)}
        <br />
        <span className="quiet">
          {between(row.ledger_completion_tokens_min, row.ledger_completion_tokens_max)}
        </span>
      </>
    ),
  },
  {
    id: "completion_drift",
    heading: "Difference",
    right: true,
    value: (row) => row.completion_drift,
    cell: (row) => <Drift tokens={row.completion_drift} />,
  },
  {
    id: "uncertain_attempts",
    heading: "Uncertain",
    right: true,
    value: (row) => row.uncertain_attempts,
    cell: (row) => count(row.uncertain_attempts),
  },
  {
    id: "advice",
    heading: "What to do",
    value: (row) => adviceOn(row),
    cell: (row) =>
      drifts(row) ? <span className="advice-cell">{adviceOn(row)}</span> : <Badge tone="good">agrees</Badge>,
  },
  {
    id: "checked_at",
    heading: "Compared",
    value: (row) => row.checked_at,
    cell: (row) => <Time at={row.checked_at} />,
  },
];

const VERIFICATIONS: Column<Verification>[] = [
  {
    id: "checked_at",
    heading: "Verified",
    value: (row) => row.checked_at,
    cell: (row) => <Time at={row.checked_at} />,
  },
  {
    id: "days",
    heading: "Days",
    value: (row) => row.from_day,
    cell: (row) => (
      <span className="nowrap-cell">
        {row.from_day} until {row.until_day}
      </span>
    ),
  },
  { id: "rows", heading: "Totals", right: true, value: (row) => row.rows, cell: (row) => count(row.rows) },
  {
    id: "wrong_hours",
    heading: "Wrong hours",
    right: true,
    value: (row) => row.wrong_hours,
    cell: (row) => count(row.wrong_hours),
  },
  {
    id: "wrong_days",
    heading: "Wrong days",
    right: true,
    value: (row) => row.wrong_days,
    cell: (row) => count(row.wrong_days),
  },
  {
    id: "wrong_amounts",
    heading: "Wrong amounts",
    right: true,
    value: (row) => row.wrong_amounts,
    cell: (row) => count(row.wrong_amounts),
  },
  {
    id: "result",
    heading: "Result",
    value: (row) => (wrongIn(row) === 0 ? "agree" : "differ"),
    cell: (row) =>
      wrongIn(row) === 0 ? <Badge tone="good">all agree</Badge> : <Badge tone="bad">some differ</Badge>,
  },
];
