/** Every slice over time: what runs scored, and what comparisons found, each with its interval. */
import { Link } from "@tanstack/react-router";
import { api, read } from "../../../api/client";
import { useList } from "../../../api/list";
import { Button } from "../../../components/button";
import { Empty, ErrorNotice, Loading } from "../../../components/notice";
import { Card } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count, percent } from "../../../format/number";
import { absolute } from "../../../format/time";
import {
  bySlice,
  type Comparison,
  gateOf,
  points,
  type SliceScore,
  type SliceVerdict,
  shortPoints,
} from "./eval-words";
import { IntervalChart, type Point } from "./interval-chart";
import { type Night, nightsOf, type SliceNight } from "./night-words";
import { NightStatusCard, Nights, SliceNights } from "./nights";

const MOST_SERIES = 6;
const DECISION_SERIES = { pass: 4, fail: 5, inconclusive: 2 } as const;

interface Looked extends SliceVerdict {
  comparison: Comparison;
}

export function SlicesOverTime({ model, slice }: { model: string | undefined; slice: string | undefined }) {
  const asked = { ...(model ? { model } : {}), ...(slice ? { slice } : {}) };
  const scores = useList(["eval-scores", asked], (cursor) =>
    read(api.GET("/admin/v1/evals/scores", { params: { query: { limit: 100, cursor, ...asked } } })),
  );
  const of = model ? { model } : {};
  const comparisons = useList(["eval-comparisons", "gate", of], (cursor) =>
    read(api.GET("/admin/v1/evals/comparisons", { params: { query: { limit: 100, cursor, ...of } } })),
  );
  const nights = useList<Night>(["eval-nights", of], (cursor) =>
    read(api.GET("/admin/v1/evals/nights", { params: { query: { limit: 100, cursor, ...of } } })),
  );
  if (nights.error) return <ErrorNotice error={nights.error} retry={nights.reload} />;
  if (scores.error) return <ErrorNotice error={scores.error} retry={scores.reload} />;
  if (comparisons.error) return <ErrorNotice error={comparisons.error} retry={comparisons.reload} />;
  if (scores.loading || comparisons.loading || nights.loading) return <Loading lines={8} />;
  if (scores.rows.length === 0)
    return (
      <div className="stack">
        <NightStatusCard />
        <div className="table-frame">
          <Empty title="No slice has been scored">
            Finished runs appear here, slice by slice. Start a run, or wait for the next night (
            <code>evals.schedule</code>).
          </Empty>
        </div>
      </div>
    );
  const looked = comparisons.rows.flatMap((comparison) =>
    (gateOf(comparison)?.slices ?? []).map((found): Looked => ({ ...found, comparison })),
  );
  return (
    <div className="stack">
      <NightStatusCard />
      <Nights list={nights} />
      <div className="grid-2">
        {bySlice(scores.rows).map(([name, own]) => (
          <SliceCard
            key={name}
            name={name}
            scores={own}
            looked={looked.filter((each) => each.slice === name && each.n > 0)}
            nights={nightsOf(nights.rows, name)}
          />
        ))}
      </div>
      {scores.hasMore && (
        <Button busy={scores.loadingMore} onClick={scores.loadMore}>
          Earlier runs
        </Button>
      )}
      <Table
        label="Scores"
        columns={COLUMNS}
        list={scores}
        rowKey={(row) => `${row.run_id} ${row.slice}`}
        csvName="slices over time"
        empty={null}
      />
    </div>
  );
}

const told = (score: SliceScore) =>
  `${absolute(score.created_at)}: ${percent(score.score.value)} of ${count(score.answered)} items, ${score.model} on ${score.pool ?? "any pool"}`;

interface SliceCardProps {
  name: string;
  scores: SliceScore[];
  looked: Looked[];
  nights: SliceNight[];
}

function SliceCard({ name, scores, looked, nights }: SliceCardProps) {
  const pools = [...new Set(scores.map((score) => score.pool ?? "as routed"))].sort();
  const goal = scores[0]?.goal ?? null;
  const newest = scores[0];
  const drawn = scores.flatMap((score): Point[] =>
    score.score.value === null
      ? []
      : [
          {
            key: score.run_id,
            at: score.created_at,
            value: score.score.value,
            lower: score.score.lower,
            upper: score.score.upper,
            series: (pools.indexOf(score.pool ?? "as routed") % MOST_SERIES) + 1,
            told: told(score),
          },
        ],
  );
  const margin = looked[0]?.margin;
  return (
    <Card
      title={name}
      about={
        newest && (
          <>
            {percent(newest.score.value)} correct in the newest run
            {goal !== null && <>, {percent(goal, 0)} is the goal</>}
          </>
        )
      }
    >
      <div className="stack-tight">
        <IntervalChart
          label={`${name}: share of correct answers`}
          points={drawn}
          bounds={goal === null ? [] : [{ value: goal, label: `goal ${percent(goal, 0)}` }]}
          format={(value) => percent(value, 0)}
          domain={[0, 1]}
        />
        {pools.length > 1 && (
          <ul className="legend">
            {pools.map((pool, place) => (
              <li key={pool}>
                <span className="swatch" data-series={(place % MOST_SERIES) + 1} />
                {pool}
              </li>
            ))}
          </ul>
        )}
        <SliceNights nights={nights} />
        {margin !== undefined && (
          <>
            <h3>Candidate minus baseline</h3>
            <IntervalChart
              label={`${name}: differences found by comparisons`}
              points={looked.map((each) => ({
                key: each.comparison.id,
                at: each.comparison.created_at,
                value: each.difference,
                lower: each.lower,
                upper: each.upper,
                series: DECISION_SERIES[each.decision],
                told: `${absolute(each.comparison.created_at)}: ${each.decision}, ${each.reason}`,
              }))}
              bounds={[
                { value: -margin, label: `the gate’s bound ${points(-margin, 1)}` },
                { value: 0, label: "alike", quiet: true },
              ]}
              format={shortPoints}
              domain={[-1, 1]}
            />
            <p className="quiet small">
              A slice passes if the whole interval is above the bound, and fails if the whole interval is
              below 0.
            </p>
          </>
        )}
      </div>
    </Card>
  );
}

const COLUMNS: Column<SliceScore>[] = [
  {
    id: "slice",
    heading: "Slice",
    value: (row) => row.slice,
    cell: (row) => (
      <Link
        className="primary-cell"
        to="/operations/evals/runs/$runId"
        params={{ runId: row.run_id }}
        search={{ slice: row.slice }}
      >
        {row.slice}
      </Link>
    ),
  },
  { id: "model", heading: "Model", value: (row) => row.model },
  { id: "pool", heading: "Pool", value: (row) => row.pool ?? "as routed" },
  {
    id: "score",
    heading: "Correct",
    right: true,
    value: (row) => row.score.value,
    cell: (row) => percent(row.score.value),
  },
  {
    id: "interval",
    heading: "95 % interval",
    right: true,
    value: (row) => row.score.lower,
    cell: (row) =>
      row.score.lower === null ? (
        <span className="quiet">items deleted</span>
      ) : (
        `${percent(row.score.lower)} to ${percent(row.score.upper)}`
      ),
  },
  {
    id: "goal",
    heading: "Goal",
    right: true,
    value: (row) => row.goal,
    cell: (row) => percent(row.goal, 0),
  },
  {
    id: "answered",
    heading: "Items",
    right: true,
    value: (row) => row.answered,
    cell: (row) => count(row.answered),
  },
  { id: "version", heading: "Version", value: (row) => row.slice_version },
  {
    id: "created_at",
    heading: "When",
    value: (row) => row.created_at,
    cell: (row) => <Time at={row.created_at} />,
  },
];
