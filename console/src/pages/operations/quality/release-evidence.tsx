/** The evidence of a release: what counts against each arm, and how far each test is from deciding. */
import { useMemo } from "react";
import { Badge } from "../../../components/badge";
import { Chart } from "../../../components/chart";
import { SelectField } from "../../../components/field";
import { Empty } from "../../../components/notice";
import { Card } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { count } from "../../../format/number";
import {
  checkOf,
  deciding,
  type Evidence,
  metricName,
  nearest,
  type Release,
  strongest,
  type Test,
  towards,
} from "./release-words";

const MOST_LINES = 5;
const whole = (share: number) => `${Math.round(100 * share)} %`;
const KINDS = {
  harm: {
    title: "Harm: is the candidate worse?",
    about:
      "The strongest test of each metric, as a share of its decision threshold. A test that reaches 100 % rolls the release back.",
    bound: "rolls back",
  },
  proof: {
    title: "Proof: is it as good?",
    about:
      "The weakest test of each metric, as a share of its decision threshold. All must reach 100 % before the candidate gets all traffic.",
    bound: "proven",
  },
} as const;

export function ReleaseEvidence({
  release,
  evidence,
  began,
  check,
  onCheck,
}: {
  release: Release;
  evidence: Evidence;
  /** When nothing was counted yet. */
  began: string;
  check: string | undefined;
  onCheck: (check: string | undefined) => void;
}) {
  const times = useMemo(
    () => [began, ...evidence.looks.map((look) => look.at)].map((at) => new Date(at).getTime() / 1000),
    [began, evidence.looks],
  );
  if (evidence.looks.length === 0)
    return (
      <Card title="Evidence">
        <Empty title="No counts yet">
          The first look comes once both arms have answered requests in a stage that serves customers, or once
          there is a slice result or a vote.
        </Empty>
      </Card>
    );
  const chosen = evidence.tests.find((test) => checkOf(test) === check) ?? deciding(evidence.tests, release);
  return (
    <>
      {chosen && (
        <Card
          title="Candidate and control"
          about="Sessions that count against each arm, summed over the release. Lines that stay together show arms that behave alike."
          actions={
            <SelectField
              label={<span className="visually-hidden">Check</span>}
              value={checkOf(chosen)}
              onChange={(event) => onCheck(event.currentTarget.value)}
            >
              {evidence.tests.map((test) => (
                <option key={checkOf(test)} value={checkOf(test)}>
                  {metricName(test.metric)}: {test.test}
                </option>
              ))}
            </SelectField>
          }
        >
          <Chart
            label={`${metricName(chosen.metric)}, ${chosen.test}: candidate and control`}
            times={times}
            series={[
              { label: "candidate", values: [0, ...chosen.candidate] },
              { label: "control", values: [0, ...chosen.control], dashed: true },
            ]}
            format={count}
            whole
          />
        </Card>
      )}
      <div className="grid-2">
        {(["harm", "proof"] as const).map((kind) => (
          <Towards key={kind} kind={kind} evidence={evidence} times={times} />
        ))}
      </div>
      <Table
        label="Checks"
        list={evidence.tests}
        rowKey={checkOf}
        csvName="evidence"
        columns={COLUMNS}
        empty={null}
        foot={
          evidence.looks.length < evidence.looks_in_all
            ? `${count(evidence.looks.length)} of ${count(evidence.looks_in_all)} looks shown`
            : evidence.looks.length === 1
              ? "1 look"
              : `${count(evidence.looks.length)} looks`
        }
      />
    </>
  );
}

function Towards({ kind, evidence, times }: { kind: Test["kind"]; evidence: Evidence; times: number[] }) {
  const series = useMemo(() => {
    const looks = evidence.looks.length;
    const found = nearest(strongest(evidence.tests, kind, looks), kind);
    return [
      ...found
        .slice(0, MOST_LINES)
        .map((each) => ({ label: metricName(each.metric), values: [0, ...each.values] })),
      { label: KINDS[kind].bound, values: Array.from({ length: looks + 1 }, () => 1), dashed: true },
    ];
  }, [evidence, kind]);
  return (
    <Card title={KINDS[kind].title} about={KINDS[kind].about}>
      {series.length > 1 ? (
        <Chart label={KINDS[kind].title} times={times} series={series} format={whole} height={200} />
      ) : (
        <p className="quiet">No test of this kind yet.</p>
      )}
    </Card>
  );
}

const last = <Value,>(values: Value[]): Value | undefined => values.at(-1);

const COLUMNS: Column<Test>[] = [
  {
    id: "kind",
    heading: "Test of",
    value: (row) => row.kind,
    cell: (row) => <Badge tone={row.kind === "harm" ? "warn" : "accent"}>{row.kind}</Badge>,
  },
  {
    id: "metric",
    heading: "What",
    value: (row) => metricName(row.metric),
    cell: (row) => (
      <>
        <span className="primary-cell">{metricName(row.metric)}</span>{" "}
        <span className="quiet">{row.test}</span>
      </>
    ),
  },
  {
    id: "candidate",
    heading: "Candidate",
    right: true,
    value: (row) => last(row.candidate),
    cell: (row) => count(last(row.candidate)),
  },
  {
    id: "control",
    heading: "Control",
    right: true,
    value: (row) => last(row.control),
    cell: (row) => count(last(row.control)),
  },
  {
    id: "log10_e",
    heading: "Evidence",
    right: true,
    value: (row) => last(row.log10_e),
    cell: (row) => power(last(row.log10_e)),
  },
  {
    id: "needed_log10",
    heading: "Decides at",
    right: true,
    value: (row) => row.needed_log10,
    cell: (row) => power(row.needed_log10),
  },
  {
    id: "share",
    heading: "So far",
    value: (row) => towards(last(row.log10_e), row.needed_log10),
    cell: (row) => {
      const share = towards(last(row.log10_e), row.needed_log10);
      if (share === null) return <span className="quiet">not tested</span>;
      const reached = share >= 1;
      return (
        <span className="evidence-meter">
          <span className="meter" data-tone={reached && row.kind === "harm" ? "bad" : undefined}>
            <i style={{ width: `${Math.min(100, 100 * share)}%` }} />
          </span>
          <span className="number">{reached ? "reached" : whole(share)}</span>
        </span>
      );
    },
  },
];

/** An e-value by its logarithm: 10 to the power of it. */
function power(log10e: number | null | undefined) {
  if (log10e == null) return <span className="quiet">–</span>;
  return (
    <>
      10<sup>{(Math.round(log10e * 10) / 10 || 0).toFixed(1).replace("-", "−")}</sup>
    </>
  );
}
