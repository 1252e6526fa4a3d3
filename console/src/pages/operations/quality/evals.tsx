import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read } from "../../../api/client";
import { useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { StateBadge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Filters, SelectFilter, TextFilter } from "../../../components/filters";
import { Empty } from "../../../components/notice";
import { Page } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { EVAL_VIEWS, JOB_STATUSES } from "./choices";
import { ComparisonForm, RunForm } from "./eval-forms";
import type { Comparison, Run } from "./eval-words";
import { SlicesOverTime } from "./slices-over-time";
import "./quality.css";

const route = getRouteApi("/signed/operations/evals");
const VIEWS = { runs: "Runs", comparisons: "Comparisons", slices: "Slices over time" } as const;

export function Evals() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { canOperate } = useMyself();
  const [making, setMaking] = useState<"run" | "comparison" | null>(null);
  const view = search.view ?? "runs";
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  useLive(["evals"], [["eval-runs"], ["eval-comparisons"], ["eval-scores"], ["eval-nights"]]);
  const writes = canOperate("evals.write");
  return (
    <Page
      title="Evals"
      about="Scores of models on items with known answers, and comparisons of a candidate with a baseline."
      actions={
        writes && (
          <>
            <Button icon="plus" onClick={() => setMaking("comparison")}>
              Compare two pools
            </Button>
            <Button kind="primary" icon="plus" onClick={() => setMaking("run")}>
              Start a run
            </Button>
          </>
        )
      }
    >
      <nav className="tabs" aria-label="Views">
        {EVAL_VIEWS.map((each) => (
          <Link
            key={each}
            className="tab"
            to="/operations/evals"
            search={{ ...search, sort: undefined, view: each }}
            aria-current={each === view ? "page" : undefined}
          >
            {VIEWS[each]}
          </Link>
        ))}
      </nav>
      <Filters>
        <TextFilter label="Model" value={search.model} onChange={(model) => set({ model })} />
        {view === "slices" ? (
          <TextFilter label="Slice" value={search.slice} onChange={(slice) => set({ slice })} />
        ) : (
          <SelectFilter
            label="Status"
            all="All"
            options={JOB_STATUSES}
            value={search.status}
            onChange={(status) => set({ status })}
          />
        )}
      </Filters>
      {view === "runs" && <Runs filters={search} writes={writes} />}
      {view === "comparisons" && <Comparisons filters={search} />}
      {view === "slices" && <SlicesOverTime model={search.model} slice={search.slice} />}
      {making === "run" && <RunForm onClose={() => setMaking(null)} />}
      {making === "comparison" && <ComparisonForm onClose={() => setMaking(null)} />}
    </Page>
  );
}

interface Asked {
  model?: string | undefined;
  status?: Run["status"] | undefined;
}

const filtersOf = ({ model, status }: Asked) => ({
  ...(model ? { model } : {}),
  ...(status ? { status } : {}),
});

function Runs({ filters, writes }: { filters: Asked; writes: boolean }) {
  const asked = filtersOf(filters);
  const list = useList(["eval-runs", asked], (cursor) =>
    read(api.GET("/admin/v1/evals/runs", { params: { query: { limit: 100, cursor, ...asked } } })),
  );
  const columns: Column<Run>[] = [
    {
      id: "model",
      heading: "Model",
      value: (row) => row.model,
      cell: (row) => (
        <Link className="primary-cell" to="/operations/evals/runs/$runId" params={{ runId: row.id }}>
          {row.model}
        </Link>
      ),
    },
    {
      id: "pool",
      heading: "Pool",
      value: (row) => row.pool,
      cell: (row) => row.pool ?? <span className="quiet nowrap-cell">as routed</span>,
    },
    {
      id: "why",
      heading: "Asked for by",
      value: (row) =>
        row.night ? `the night of ${row.night}` : row.arm ? `a comparison, as ${row.arm}` : "hand",
      cell: (row) =>
        row.comparison_id ? (
          <Link
            className="nowrap-cell"
            to="/operations/evals/comparisons/$comparisonId"
            params={{ comparisonId: row.comparison_id }}
          >
            a comparison, as {row.arm}
          </Link>
        ) : row.night ? (
          `the night of ${row.night}`
        ) : (
          "hand"
        ),
    },
    {
      id: "status",
      heading: "Status",
      value: (row) => row.status,
      cell: (row) => <StateBadge state={row.status} />,
    },
    {
      id: "answered",
      heading: "Answered",
      right: true,
      value: (row) => row.answered,
      cell: (row) => `${count(row.answered)} of ${count(row.items)}`,
    },
    {
      id: "created_at",
      heading: "Queued",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "ended_at",
      heading: "Ended",
      value: (row) => row.ended_at,
      cell: (row) => <Time at={row.ended_at} none="not yet" />,
    },
  ];
  return (
    <Table
      label="Runs"
      columns={columns}
      list={list}
      rowKey={(row) => row.id}
      csvName="eval runs"
      empty={
        <Empty title={asked.model || asked.status ? "No such run" : "No runs yet"}>
          {writes
            ? "Start one: choose a model and slices. A worker starts it within seconds, and it counts against no budget."
            : "Clear the filters. A member with the permission evals.write can start one."}
        </Empty>
      }
    />
  );
}

function Comparisons({ filters }: { filters: Asked }) {
  const asked = filtersOf(filters);
  const list = useList(["eval-comparisons", asked], (cursor) =>
    read(api.GET("/admin/v1/evals/comparisons", { params: { query: { limit: 100, cursor, ...asked } } })),
  );
  const columns: Column<Comparison>[] = [
    {
      id: "model",
      heading: "Model",
      value: (row) => row.model,
      cell: (row) => (
        <Link
          className="primary-cell"
          to="/operations/evals/comparisons/$comparisonId"
          params={{ comparisonId: row.id }}
        >
          {row.model}
        </Link>
      ),
    },
    {
      id: "candidate_pool",
      heading: "Candidate",
      value: (row) => row.candidate_pool,
      cell: (row) => (
        <>
          {row.candidate_pool} <span className="quiet">against {row.baseline_pool}</span>
        </>
      ),
    },
    {
      id: "why",
      heading: "Asked for by",
      value: (row) => row.release_id ?? "hand",
      cell: (row) =>
        row.release_id ? (
          <Link to="/operations/releases/$releaseId" params={{ releaseId: row.release_id }}>
            a release
          </Link>
        ) : (
          "hand"
        ),
    },
    {
      id: "status",
      heading: "Status",
      value: (row) => row.status,
      cell: (row) => <StateBadge state={row.status} />,
    },
    {
      id: "decision",
      heading: "Decision",
      value: (row) => row.decision,
      cell: (row) =>
        row.decision ? <StateBadge state={row.decision} /> : <span className="quiet">none yet</span>,
    },
    {
      id: "created_at",
      heading: "Queued",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "ended_at",
      heading: "Ended",
      value: (row) => row.ended_at,
      cell: (row) => <Time at={row.ended_at} none="not yet" />,
    },
  ];
  return (
    <Table
      label="Comparisons"
      columns={columns}
      list={list}
      rowKey={(row) => row.id}
      csvName="eval comparisons"
      empty={
        <Empty title="No comparisons">
          Compare two pools of a model: both answer the same items, and each slice passes, fails or stays
          undecided. A release with slices starts a comparison by itself.
        </Empty>
      }
    />
  );
}
