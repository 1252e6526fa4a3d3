/** What copies of requests at candidates said, beside what customers were given: numbers, no texts. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../../api/client";
import { useLive } from "../../../api/live";
import { Filters, TextFilter } from "../../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../../components/notice";
import { Card, Page, Stats } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count, percent } from "../../../format/number";
import { filtersOf } from "../../../shell/search";
import { stageOfCopies } from "./release-words";
import "./quality.css";

type Sums = Schemas["ShadowSums"];
type Estimate = Schemas["Estimate"];
const route = getRouteApi("/signed/operations/shadow");

type Measured = {
  [Name in keyof Sums]: Sums[Name] extends Estimate ? Name : never;
}[keyof Sums];

const MEASURES: [Measured, string, "share" | "ratio"][] = [
  ["failed", "Copies that failed", "share"],
  ["late", "Copies that came too late", "share"],
  ["baseline_failed", "Requests that failed on their first engine", "share"],
  ["same_text", "The same text", "share"],
  ["same_text_greedy", "The same text, without sampling", "share"],
  ["agreed", "Equal tokens before the first difference", "share"],
  ["same_finish", "The same finish reason", "share"],
  ["same_tool_calls", "The same tool calls", "share"],
  ["baseline_json_valid", "Valid JSON, baseline", "share"],
  ["candidate_json_valid", "Valid JSON, candidate", "share"],
  ["baseline_refused", "Refusals, baseline", "share"],
  ["candidate_refused", "Refusals, candidate", "share"],
  ["length", "Length: candidate / baseline", "ratio"],
  ["ttft", "Time to first token: candidate / baseline", "ratio"],
  ["tokens_per_s", "Tokens per second: candidate / baseline", "ratio"],
];

export function Shadow() {
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const report = useQuery({
    queryKey: ["shadow", search],
    queryFn: () => read(api.GET("/admin/v1/shadow", { params: { query: search } })),
  });
  useLive(["releases"], [["shadow"]]);
  return (
    <Page
      title="Shadow"
      about="Requests of the old version’s sessions are copied to the candidate in every stage of a release. This page compares its answers with the ones that customers got."
    >
      <Filters>
        <TextFilter
          label="Model"
          value={search.model}
          onChange={(model) => void navigate({ search: (old) => ({ ...old, model }), replace: true })}
        />
        <TextFilter
          label="Release’s id"
          value={search.release}
          onChange={(release) => void navigate({ search: (old) => ({ ...old, release }), replace: true })}
        />
      </Filters>
      {report.error ? (
        <ErrorNotice error={report.error} retry={() => void report.refetch()} />
      ) : !report.data ? (
        <Loading lines={8} />
      ) : report.data.data.length === 0 ? (
        <div className="table-frame">
          <Empty title="No copies yet">
            A release copies requests to its candidate until the candidate serves all traffic. Results appear
            here by stage while pairs are kept (<code>worker.shadow.pair_retention_days</code>).
          </Empty>
        </div>
      ) : (
        <div className="stack">
          {report.data.data.map((sums) => (
            <Compared key={`${sums.release} ${sums.model} ${sums.stage_share}`} sums={sums} />
          ))}
        </div>
      )}
    </Page>
  );
}

interface Row {
  name: string;
  kind: "share" | "ratio";
  estimate: Estimate;
}

const told = (row: Row, value: number | null) => (row.kind === "share" ? percent(value) : times(value));
const times = (value: number | null) => (value === null ? "–" : `× ${value.toFixed(2)}`);

function Compared({ sums }: { sums: Sums }) {
  const rows = MEASURES.map(([id, name, kind]): Row => ({ name, kind, estimate: sums[id] })).filter(
    (row) => row.estimate.value !== null,
  );
  return (
    <Card
      title={sums.model}
      about={
        sums.release ? (
          <>
            of the release{" "}
            <Link to="/operations/releases/$releaseId" params={{ releaseId: sums.release }}>
              {sums.release.slice(0, 8)}
            </Link>
            {stageOfCopies(sums.stage_share)}
          </>
        ) : (
          "of a split without a release"
        )
      }
    >
      <div className="stack">
        <Stats
          figures={[
            { name: "Pairs", value: count(sums.pairs) },
            { name: "Sessions", value: count(sums.units) },
            { name: "First", value: <Time at={sums.first_at} /> },
            { name: "Last", value: <Time at={sums.last_at} /> },
          ]}
        />
        <Table
          label={`Results of copies of ${sums.model}`}
          columns={COLUMNS}
          list={rows}
          rowKey={(row) => row.name}
          csvName={`shadow of ${sums.model}`}
          empty={<Empty title="Nothing could be compared" />}
          foot="95 % intervals; sessions, not pairs, count as independent"
        />
      </div>
    </Card>
  );
}

const COLUMNS: Column<Row>[] = [
  {
    id: "measure",
    heading: "Measure",
    value: (row) => row.name,
    cell: (row) => <span className="primary-cell">{row.name}</span>,
  },
  {
    id: "value",
    heading: "Value",
    right: true,
    value: (row) => row.estimate.value,
    cell: (row) => told(row, row.estimate.value),
  },
  {
    id: "interval",
    heading: "Interval",
    right: true,
    value: (row) => row.estimate.lower,
    cell: (row) =>
      row.estimate.lower === null
        ? "–"
        : `${told(row, row.estimate.lower)} to ${told(row, row.estimate.upper)}`,
  },
  {
    id: "pairs",
    heading: "Pairs",
    right: true,
    value: (row) => row.estimate.pairs,
    cell: (row) => count(row.estimate.pairs),
  },
  {
    id: "units",
    heading: "Sessions",
    right: true,
    value: (row) => row.estimate.units,
    cell: (row) => count(row.estimate.units),
  },
];
