import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, read } from "../../../api/client";
import { readAll } from "../../../api/list";
import { useLive } from "../../../api/live";
import { useAction } from "../../../components/action";
import { StateBadge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Confirm, Dialog } from "../../../components/dialog";
import { Filters, SelectFilter } from "../../../components/filters";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Card, Facts, Page, Stats } from "../../../components/page";
import { Pending } from "../../../components/pending";
import { type Column, Table } from "../../../components/table";
import { FullTime, Time } from "../../../components/time";
import { count, percent } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { Answer, Answers } from "./answers";
import { MOVED } from "./choices";
import {
  type Comparison,
  gateOf,
  isUnder,
  type Moved,
  movedItems,
  points,
  type SliceVerdict,
  shortPoints,
} from "./eval-words";
import { IntervalChart } from "./interval-chart";
import "./quality.css";

const route = getRouteApi("/signed/operations/evals/comparisons/$comparisonId");
const SERIES = { pass: 4, fail: 5, inconclusive: 2 } as const;
const MOST_ITEMS = 10_000;

export function EvalComparison() {
  const { comparisonId } = route.useParams();
  const { canOperate } = useMyself();
  const [cancelling, setCancelling] = useState(false);
  const path = { comparison_id: comparisonId };
  const comparison = useQuery({
    queryKey: ["eval-comparison", comparisonId],
    queryFn: () => read(api.GET("/admin/v1/evals/comparisons/{comparison_id}", { params: { path } })),
  });
  const cancel = useAction(
    () => read(api.POST("/admin/v1/evals/comparisons/{comparison_id}/cancel", { params: { path } })),
    { done: "The comparison will end without a decision.", then: () => setCancelling(false) },
  );
  const under = comparison.data === undefined || isUnder(comparison.data.status);
  useLive(["evals"], under ? [["eval-comparison", comparisonId]] : []);
  if (!comparison.data) return <Pending title="Comparison" query={comparison} />;
  const found = comparison.data;
  const gate = gateOf(found);
  const margin = found.rule.margin ?? 0.02;
  const looked = gate?.slices.filter((each) => each.n > 0) ?? [];
  return (
    <Page
      title={`${found.model}: ${found.candidate_pool} against ${found.baseline_pool}`}
      crumbs={[
        <Link key="evals" to="/operations/evals" search={{ view: "comparisons" }}>
          Evals
        </Link>,
        "Comparison",
      ]}
      actions={
        canOperate("evals.write") &&
        isUnder(found.status) && (
          <Button kind="danger" onClick={() => setCancelling(true)}>
            Cancel…
          </Button>
        )
      }
    >
      <div className="stack">
        <Decided comparison={found} />
        <Stats
          figures={[
            { name: "Status", value: <StateBadge state={found.status} /> },
            {
              name: "Decision",
              value: found.decision ? <StateBadge state={found.decision} /> : "none yet",
            },
            { name: "Margin", value: points(-margin, 1) },
            { name: "Budget", value: count(found.budget_items), note: "items of each slice" },
            { name: "Queued", value: <Time at={found.created_at} /> },
          ]}
        />
        {looked.length > 0 && (
          <div className="grid-2">
            {looked.map((each) => (
              <Card key={each.slice} title={each.slice} about={each.reason}>
                <IntervalChart
                  label={`${each.slice}: difference with its interval`}
                  points={[
                    {
                      key: each.slice,
                      at: found.ended_at ?? found.created_at,
                      value: each.difference,
                      lower: each.lower,
                      upper: each.upper,
                      series: SERIES[each.decision],
                      told: each.reason,
                    },
                  ]}
                  bounds={[
                    { value: -each.margin, label: `the gate’s bound ${points(-each.margin, 1)}` },
                    { value: 0, label: "alike", quiet: true },
                  ]}
                  format={shortPoints}
                  domain={[-1, 1]}
                />
              </Card>
            ))}
          </div>
        )}
        <Table
          label="Slices"
          list={gate?.slices ?? []}
          rowKey={(row) => row.slice}
          csvName="comparison by slice"
          columns={SLICES}
          empty={
            <Empty title="Not judged yet">
              The gate looks once {count(found.rule.first_look ?? 200)} items of a slice have answers of both.
            </Empty>
          }
        />
        {gate && gate.slices.length > 0 && <WhatMoved comparison={found} slices={gate.slices} />}
        <Card title="This comparison">
          <Facts
            facts={[
              [
                "Runs",
                <span className="row" key="runs">
                  <Link to="/operations/evals/runs/$runId" params={{ runId: found.baseline_run }}>
                    of {found.baseline_pool}
                  </Link>
                  <Link to="/operations/evals/runs/$runId" params={{ runId: found.candidate_run }}>
                    of {found.candidate_pool}
                  </Link>
                </span>,
              ],
              [
                "Asked for by",
                found.release_id ? (
                  <Link
                    key="release"
                    to="/operations/releases/$releaseId"
                    params={{ releaseId: found.release_id }}
                  >
                    a release
                  </Link>
                ) : (
                  "hand"
                ),
              ],
              ["A worse candidate passes", `${percent(found.rule.alpha ?? 0.05)} of the time at most`],
              ["Queued", <FullTime key="queued" at={found.created_at} />],
              ["Id", <code key="id">{found.id}</code>],
            ]}
          />
        </Card>
      </div>
      {cancelling && (
        <Confirm
          title="Cancel the comparison?"
          action="Cancel the comparison"
          busy={cancel.isPending}
          error={cancel.error}
          onConfirm={() => cancel.mutate(undefined)}
          onClose={() => setCancelling(false)}
        >
          The comparison ends without a decision
          {found.release_id && ", and the release that waits for it stops advancing"}. Its answers are kept.
        </Confirm>
      )}
    </Page>
  );
}

function Decided({ comparison }: { comparison: Comparison }) {
  const gate = gateOf(comparison);
  if (comparison.error)
    return (
      <Notice tone="bad" title="The comparison failed">
        {comparison.error}
      </Notice>
    );
  if (comparison.decision === null)
    return isUnder(comparison.status) ? (
      <Notice title={comparison.status === "queued" ? "Waiting for a worker" : "Both pools are answering"}>
        {gate ? gate.reason : "The first look comes once both pools have answered the first items."}
      </Notice>
    ) : (
      <Notice tone="warn" title="The comparison ended without a decision" />
    );
  const said = {
    pass: ["good", "In no slice is the candidate worse by the margin or more"],
    fail: ["bad", "The candidate is worse"],
    inconclusive: ["warn", "The items were not enough to decide. This is not a pass"],
  } as const;
  const [tone, title] = said[comparison.decision];
  return (
    <Notice tone={tone} title={title}>
      {gate?.reason}
      {comparison.decision === "inconclusive" && (
        <p className="quiet">
          Compare again with a larger budget, or with a wider margin if that is acceptable.
        </p>
      )}
    </Notice>
  );
}

const SLICES: Column<SliceVerdict>[] = [
  {
    id: "slice",
    heading: "Slice",
    value: (row) => row.slice,
    cell: (row) => <span className="primary-cell">{row.slice}</span>,
  },
  {
    id: "decision",
    heading: "Decision",
    value: (row) => row.decision,
    cell: (row) => <StateBadge state={row.decision} />,
  },
  {
    id: "difference",
    heading: "Difference",
    right: true,
    value: (row) => row.difference,
    cell: (row) => (row.n > 0 ? points(row.difference) : "–"),
  },
  {
    id: "interval",
    heading: "Interval",
    right: true,
    value: (row) => row.lower,
    cell: (row) => (row.n > 0 ? `${shortPoints(row.lower)}, ${shortPoints(row.upper)}` : "–"),
  },
  {
    id: "flip_share",
    heading: "Moved",
    right: true,
    value: (row) => row.flip_share,
    cell: (row) => percent(row.flip_share),
  },
  { id: "n", heading: "Items", right: true, value: (row) => row.n, cell: (row) => count(row.n) },
  {
    id: "next",
    heading: "Next look",
    right: true,
    value: (row) => row.next_look,
    cell: (row) => (row.next_look === null ? "–" : `at ${count(row.next_look)}`),
  },
];

/** The items that one answered right and the other did not. */
function WhatMoved({ comparison, slices }: { comparison: Comparison; slices: SliceVerdict[] }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [shown, setShown] = useState<Moved | null>(null);
  const worst = [...slices].sort((one, other) => one.difference - other.difference)[0]?.slice;
  const slice = search.slice ?? worst ?? "";
  const show = search.moved ?? "all";
  const under = isUnder(comparison.status);
  const moved = useQuery({
    queryKey: ["eval-moved", comparison.id, slice, under ? comparison.verdict : "ended"],
    staleTime: under ? 0 : Number.POSITIVE_INFINITY,
    queryFn: async () => {
      const [baseline, candidate] = await Promise.all(
        [comparison.baseline_run, comparison.candidate_run].map((run_id) =>
          readAll(
            (cursor) =>
              read(
                api.GET("/admin/v1/evals/runs/{run_id}/items", {
                  params: { path: { run_id }, query: { limit: 100, cursor, slice } },
                }),
              ),
            MOST_ITEMS,
          ),
        ),
      );
      return movedItems(baseline ?? [], candidate ?? []);
    },
  });
  const rows = useMemo(
    () =>
      (moved.data ?? []).filter(
        (each) => show === "all" || (show === "lost" ? each.difference < 0 : each.difference > 0),
      ),
    [moved.data, show],
  );
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true, resetScroll: false });
  const columns: Column<Moved>[] = [
    {
      id: "seed",
      heading: "Item",
      value: (row) => row.seed,
      cell: (row) => (
        <button type="button" className="link-button" onClick={() => setShown(row)}>
          {row.seed}
        </button>
      ),
    },
    {
      id: "difference",
      heading: "Moved",
      right: true,
      value: (row) => row.difference,
      cell: (row) => `${row.baseline.score} → ${row.candidate.score}`,
    },
    {
      id: "baseline",
      heading: comparison.baseline_pool,
      value: (row) => row.baseline.answer,
      cell: (row) => <span className="answer-cell">{row.baseline.answer || row.baseline.error_code}</span>,
    },
    {
      id: "candidate",
      heading: comparison.candidate_pool,
      value: (row) => row.candidate.answer,
      cell: (row) => <span className="answer-cell">{row.candidate.answer || row.candidate.error_code}</span>,
    },
    {
      id: "cluster",
      heading: "Template",
      value: (row) => row.cluster,
      cell: (row) => <span className="answer-cell">{row.cluster}</span>,
    },
  ];
  return (
    <section>
      <h2>What moved</h2>
      <p className="quiet small under-heading">
        Items that both pools answered with different scores, losses first.
      </p>
      <Filters>
        <SelectFilter
          label="Slice"
          options={slices.map((each) => each.slice)}
          value={slice}
          onChange={(value) => set({ slice: value })}
        />
        <SelectFilter
          label="Which"
          options={MOVED}
          names={{ all: "all that moved", lost: "lost by the candidate", won: "won by the candidate" }}
          value={show}
          onChange={(value) => set({ moved: value })}
        />
      </Filters>
      {moved.error ? (
        <ErrorNotice error={moved.error} retry={() => void moved.refetch()} />
      ) : !moved.data ? (
        <Loading lines={4} />
      ) : (
        <Table
          label="What moved"
          list={rows}
          rowKey={(row) => row.key}
          csvName={`what moved in ${slice}`}
          columns={columns}
          empty={
            <Empty title="Nothing moved">Both pools had the same score on every item of this slice.</Empty>
          }
        />
      )}
      {shown && (
        <Dialog title={`${shown.slice}, item ${shown.seed}`} wide onClose={() => setShown(null)}>
          <div className="dialog-body">
            <p className="quiet">{shown.cluster}</p>
            <Answers>
              <Answer
                title={`${comparison.baseline_pool}: ${shown.baseline.score}`}
                text={shown.baseline.answer}
              />
              <Answer
                title={`${comparison.candidate_pool}: ${shown.candidate.score}`}
                text={shown.candidate.answer}
              />
            </Answers>
          </div>
        </Dialog>
      )}
    </section>
  );
}
