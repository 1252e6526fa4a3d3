import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { useAction } from "../../../components/action";
import { StateBadge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Confirm, Dialog } from "../../../components/dialog";
import { Filters, SelectFilter } from "../../../components/filters";
import { Empty, Notice } from "../../../components/notice";
import { Card, Facts, Page, Stats } from "../../../components/page";
import { Pending } from "../../../components/pending";
import { type Column, Table } from "../../../components/table";
import { FullTime, Time } from "../../../components/time";
import { count, milliseconds, percent } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { Answer } from "./answers";
import { BELOW } from "./choices";
import { type EvalItem, isUnder } from "./eval-words";
import "./quality.css";

type Slice = Schemas["SliceProgress"];
const route = getRouteApi("/signed/operations/evals/runs/$runId");

export function EvalRun() {
  const { runId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { canOperate } = useMyself();
  const [cancelling, setCancelling] = useState(false);
  const [shown, setShown] = useState<EvalItem | null>(null);
  const path = { run_id: runId };
  const run = useQuery({
    queryKey: ["eval-run", runId],
    queryFn: () => read(api.GET("/admin/v1/evals/runs/{run_id}", { params: { path } })),
  });
  const filters = {
    ...(search.slice ? { slice: search.slice } : {}),
    ...(search.below ? { below: Number(search.below) } : {}),
  };
  const items = useList(["eval-items", runId, filters], (cursor) =>
    read(
      api.GET("/admin/v1/evals/runs/{run_id}/items", {
        params: { path, query: { limit: 100, cursor, ...filters } },
      }),
    ),
  );
  const cancel = useAction(
    () => read(api.POST("/admin/v1/evals/runs/{run_id}/cancel", { params: { path } })),
    {
      done: "The run will end; its answers are kept.",
      then: () => setCancelling(false),
    },
  );
  const under = run.data === undefined || isUnder(run.data.run.status);
  useLive(
    ["evals"],
    under
      ? [
          ["eval-run", runId],
          ["eval-items", runId],
        ]
      : [],
  );
  if (!run.data) return <Pending title="Run" query={run} />;
  const { run: found, slices } = run.data;
  const right = slices.reduce((sum, slice) => sum + slice.score_sum, 0);
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true, resetScroll: false });
  return (
    <Page
      title={`${found.model}${found.pool ? ` on ${found.pool}` : ""}`}
      crumbs={[
        <Link key="evals" to="/operations/evals">
          Evals
        </Link>,
        "Run",
      ]}
      actions={
        canOperate("evals.write") &&
        isUnder(found.status) &&
        found.comparison_id === null && (
          <Button kind="danger" onClick={() => setCancelling(true)}>
            Cancel…
          </Button>
        )
      }
    >
      <div className="stack">
        {found.error && (
          <Notice tone="bad" title="The run failed">
            {found.error}
          </Notice>
        )}
        {found.comparison_id && (
          <Notice title={`This run is the ${found.arm} of a comparison`}>
            <Link
              to="/operations/evals/comparisons/$comparisonId"
              params={{ comparisonId: found.comparison_id }}
            >
              See what both answered
            </Link>
            , or cancel it there.
          </Notice>
        )}
        <Stats
          figures={[
            { name: "Status", value: <StateBadge state={found.status} /> },
            { name: "Answered", value: count(found.answered), note: `of ${count(found.items)} items` },
            {
              name: "Correct",
              value: found.answered > 0 ? percent(right / found.answered) : "–",
              note: "of all items, whatever the slice",
            },
            { name: "Queued", value: <Time at={found.created_at} /> },
            { name: "Ended", value: <Time at={found.ended_at} none="not yet" /> },
          ]}
        />
        <Table
          label="Slices"
          list={slices}
          rowKey={(row) => row.slice}
          csvName="slices"
          columns={SLICES}
          empty={<Empty title="No slices" />}
        />
        <section>
          <h2 className="visually-hidden">Items</h2>
          <Filters>
            <SelectFilter
              label="Slice"
              all="All"
              options={slices.map((slice) => slice.slice)}
              value={search.slice}
              onChange={(slice) => set({ slice })}
            />
            <SelectFilter
              label="Score"
              all="Any"
              options={BELOW}
              names={{ "1": "not fully correct", "0.5": "below 0.5" }}
              value={search.below}
              onChange={(below) => set({ below })}
            />
          </Filters>
          <Table
            label="Items"
            columns={itemColumns(setShown)}
            list={items}
            rowKey={(row) => `${row.slice} ${row.seed}`}
            csvName={`items of ${found.id}`}
            empty={
              search.slice || search.below ? (
                <Empty title="No such item">Clear the filters, or choose another slice.</Empty>
              ) : found.status === "queued" ? (
                <Empty title="Waiting for a worker">
                  A worker of the queue “evals” starts it within seconds. If none does, check that one is
                  running: <code>slipstream status</code>.
                </Empty>
              ) : (
                <Empty title="No items">
                  No item was answered, or the items were deleted because of their age.
                </Empty>
              )
            }
          />
        </section>
        <Card title="This run">
          <Facts
            facts={[
              ["The engines’ name for the model", found.engine_model ?? "not started"],
              ["Items’ first seed", <code key="seed">{found.first_seed}</code>],
              ["Asked for by", found.night ? `the night of ${found.night}` : (found.arm ?? "hand")],
              ["Queued", <FullTime key="queued" at={found.created_at} />],
              ["Id", <code key="id">{found.id}</code>],
            ]}
          />
        </Card>
      </div>
      {cancelling && (
        <Confirm
          title="Cancel the run?"
          action="Cancel the run"
          busy={cancel.isPending}
          error={cancel.error}
          onConfirm={() => cancel.mutate(undefined)}
          onClose={() => setCancelling(false)}
        >
          No further items run; the answers are kept. A cancelled run cannot be resumed.
        </Confirm>
      )}
      {shown && <Item item={shown} onClose={() => setShown(null)} />}
    </Page>
  );
}

const SLICES: Column<Slice>[] = [
  {
    id: "slice",
    heading: "Slice",
    value: (row) => row.slice,
    cell: (row) => (
      <>
        <span className="primary-cell">{row.slice}</span>{" "}
        {row.about && <span className="quiet">{row.about}</span>}
      </>
    ),
  },
  {
    id: "answered",
    heading: "Answered",
    right: true,
    value: (row) => row.answered,
    cell: (row) => `${count(row.answered)} of ${count(row.items)}`,
  },
  {
    id: "right",
    heading: "Correct",
    right: true,
    value: (row) => (row.answered > 0 ? row.score_sum / row.answered : null),
    cell: (row) => (row.answered > 0 ? percent(row.score_sum / row.answered) : "–"),
  },
  { id: "goal", heading: "Goal", right: true, value: (row) => row.goal, cell: (row) => percent(row.goal, 0) },
  { id: "version", heading: "Version", value: (row) => row.slice_version },
];

function itemColumns(show: (item: EvalItem) => void): Column<EvalItem>[] {
  return [
    { id: "slice", heading: "Slice", value: (row) => row.slice },
    {
      id: "seed",
      heading: "Item",
      value: (row) => row.seed,
      cell: (row) => (
        <button type="button" className="link-button" onClick={() => show(row)}>
          {row.seed}
        </button>
      ),
    },
    {
      id: "score",
      heading: "Score",
      right: true,
      value: (row) => row.score,
      cell: (row) => Number(row.score.toFixed(3)),
    },
    {
      id: "answer",
      heading: "Answer",
      value: (row) => row.answer,
      cell: (row) =>
        row.error_code ? (
          <code>{row.error_code}</code>
        ) : (
          <span className="answer-cell" title={row.answer.slice(0, 300)}>
            {row.answer}
          </span>
        ),
    },
    {
      id: "cluster",
      heading: "Template",
      value: (row) => row.cluster,
      cell: (row) => <span className="answer-cell">{row.cluster}</span>,
    },
    {
      id: "latency_ms",
      heading: "Took",
      right: true,
      value: (row) => row.latency_ms,
      cell: (row) => milliseconds(row.latency_ms),
    },
  ];
}

function Item({ item, onClose }: { item: EvalItem; onClose: () => void }) {
  return (
    <Dialog title={`${item.slice}, item ${item.seed}`} wide onClose={onClose}>
      <div className="dialog-body">
        <Facts
          facts={[
            ["Template", item.cluster],
            ["Score", String(Number(item.score.toFixed(3)))],
            ["Took", milliseconds(item.latency_ms)],
            ["Request", item.request_id ? <code key="request">{item.request_id}</code> : "none"],
            ...(item.error_code
              ? [["Refused with", <code key="error">{item.error_code}</code>] as [string, React.ReactNode]]
              : []),
          ]}
        />
        <Answer title="Answer" text={item.answer} />
      </div>
    </Dialog>
  );
}
