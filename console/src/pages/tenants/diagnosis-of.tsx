/** What makes requests slow, with its evidence and what to change: of the deployment, or of an organization. */
import type { ReactNode } from "react";
import type { Schemas } from "../../api/client";
import { Badge, type Tone } from "../../components/badge";
import { Empty, Notice } from "../../components/notice";
import { Card } from "../../components/page";
import { Table } from "../../components/table";
import { FullTime } from "../../components/time";
import { count, milliseconds } from "../../format/number";
import type { Look } from "../operations/serving/choices";

type Diagnosis = Schemas["DiagnosisOf"];
type Found = Schemas["FoundCause"];
type Numbers = Schemas["TwoNumbers"];

export const LOOK_NAMES: Record<Look, string> = {
  "15m": "Last 15 minutes",
  "1h": "Last hour",
  "6h": "Last 6 hours",
  "24h": "Last 24 hours",
  "7d": "Last 7 days",
};

const OUTCOMES: Record<Diagnosis["outcome"], { title: string; tone: Tone; about: string }> = {
  found: { title: "Something is wrong", tone: "bad", about: "The first cause, by what it costs." },
  nothing_found: {
    title: "No cause found",
    tone: "good",
    about: "Every cause was looked for; none is above its threshold.",
  },
  not_enough_evidence: {
    title: "Not enough is known",
    tone: "warn",
    about: "Too little was measured to say what is wrong.",
  },
};

export function words(name: string): string {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function DiagnosisOf({ found }: { found: Diagnosis }) {
  const outcome = OUTCOMES[found.outcome];
  return (
    <div className="stack">
      <Notice tone={outcome.tone} title={outcome.title}>
        {outcome.about} {count(found.requests)} requests from <FullTime at={found.start} /> to{" "}
        <FullTime at={found.end} />, beside {count(found.requests_before)} of the window before.
      </Notice>
      {found.primary && <Cause cause={found.primary} title="First" />}
      {found.second.map((each) => (
        <Cause key={each.cause} cause={each} title="Then" />
      ))}
      {found.explained.length > 0 && (
        <Card title="What the first one makes look wrong" about="Probably gone once that is mended.">
          <ul className="lines">
            {found.explained.map((each) => (
              <li key={each.cause}>
                <strong>{words(each.cause)}</strong>: {each.evidence.join(" ")}
              </li>
            ))}
          </ul>
        </Card>
      )}
      <NumbersOf rows={found.numbers} />
      <div className="grid-2">
        <Lines
          title="Ruled out"
          about="Looked for, and not there."
          lines={found.clear.map((each) => words(each))}
        />
        <Lines
          title="Not enough data"
          about="What would have to be measured first."
          lines={found.unknown.map((each) => `${words(each.cause)}: ${each.why}`)}
        />
        <Lines title="Questions" about="What numbers cannot answer." lines={found.questions} />
        <Lines title="Too few requests" about="Classes that nothing is said of." lines={found.not_judged} />
      </div>
    </div>
  );
}

function Cause({ cause, title }: { cause: Found; title: string }) {
  return (
    <Card
      title={
        <>
          {title}: {words(cause.cause)}
        </>
      }
      about={`In ${words(cause.phase).toLowerCase()}.`}
      actions={<Badge tone={cause.new ? "bad" : "warn"}>{cause.new ? "new" : "was so before"}</Badge>}
    >
      <div className="stack-tight">
        <h3>Evidence</h3>
        <ul className="lines">
          {cause.evidence.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
        {cause.fixes.length > 0 && (
          <>
            <h3>What to do</h3>
            <ol className="lines">
              {cause.fixes.map((each) => (
                <li key={each.fix}>{each.told}</li>
              ))}
            </ol>
          </>
        )}
        {cause.would_not_help.length > 0 && (
          <>
            <h3>What would not help</h3>
            <ul className="lines">
              {cause.would_not_help.map((each) => (
                <li key={each.fix}>
                  {words(each.fix)}: {each.why}
                </li>
              ))}
            </ul>
          </>
        )}
      </div>
    </Card>
  );
}

function NumbersOf({ rows }: { rows: Numbers[] }) {
  const within = (ms: number | null, objective: number | null): ReactNode => (
    <span className={ms !== null && objective !== null && ms > objective ? "over" : undefined}>
      {milliseconds(ms)}
    </span>
  );
  return (
    <Card
      title="TTFT and TPOT"
      about="Time to first token, and time per output token behind it: never one without the other."
    >
      <Table
        label="TTFT and TPOT"
        columns={[
          {
            id: "class",
            heading: "Requests",
            value: (row) => `${row.tier ?? "all"} ${row.length ?? ""}`,
            cell: (row) => (
              <>
                <span className="primary-cell">
                  {row.tier ?? "all"}
                  {row.length && `, ${row.length} prompts`}
                </span>
                <br />
                <small className="quiet">{count(row.requests)} requests</small>
              </>
            ),
          },
          {
            id: "ttft_objective_ms",
            heading: "TTFT promised",
            right: true,
            value: (row) => row.ttft_objective_ms,
            cell: (row) => milliseconds(row.ttft_objective_ms),
          },
          {
            id: "ttft_p50_ms",
            heading: "TTFT p50",
            right: true,
            value: (row) => row.ttft_p50_ms,
            cell: (row) => within(row.ttft_p50_ms, row.ttft_objective_ms),
          },
          {
            id: "ttft_p95_ms",
            heading: "TTFT p95",
            right: true,
            value: (row) => row.ttft_p95_ms,
            cell: (row) => within(row.ttft_p95_ms, row.ttft_objective_ms),
          },
          {
            id: "ttft_p99_ms",
            heading: "TTFT p99",
            right: true,
            value: (row) => row.ttft_p99_ms,
            cell: (row) => within(row.ttft_p99_ms, row.ttft_objective_ms),
          },
          {
            id: "tpot_objective_ms",
            heading: "TPOT promised",
            right: true,
            value: (row) => row.tpot_objective_ms,
            cell: (row) => milliseconds(row.tpot_objective_ms),
          },
          {
            id: "tpot_p50_ms",
            heading: "TPOT p50",
            right: true,
            value: (row) => row.tpot_p50_ms,
            cell: (row) => within(row.tpot_p50_ms, row.tpot_objective_ms),
          },
          {
            id: "tpot_p95_ms",
            heading: "TPOT p95",
            right: true,
            value: (row) => row.tpot_p95_ms,
            cell: (row) => within(row.tpot_p95_ms, row.tpot_objective_ms),
          },
          {
            id: "tpot_p99_ms",
            heading: "TPOT p99",
            right: true,
            value: (row) => row.tpot_p99_ms,
            cell: (row) => within(row.tpot_p99_ms, row.tpot_objective_ms),
          },
        ]}
        list={rows}
        rowKey={(row) => `${row.tier}-${row.length}`}
        csvName="ttft and tpot"
        empty={<Empty title="No request in this window" />}
      />
    </Card>
  );
}

function Lines({ title, about, lines }: { title: string; about: string; lines: string[] }) {
  if (lines.length === 0) return null;
  return (
    <Card title={title} about={about}>
      <ul className="lines">
        {lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </Card>
  );
}
