/** What makes requests slow, with its evidence and what to change: of the deployment, or of an organization. */
import type { ReactNode } from "react";
import type { Schemas } from "../../api/client";
import { Badge, type Tone } from "../../components/badge";
import { Empty, Notice } from "../../components/notice";
import { Card } from "../../components/page";
import { Table } from "../../components/table";
import { FullTime } from "../../components/time";
import { count, milliseconds, percent } from "../../format/number";
import type { Look } from "../operations/serving/choices";

type Diagnosis = Schemas["DiagnosisOf"];
type Found = Schemas["FoundCause"];
type Burning = Schemas["BurningObjective"];
type Numbers = Schemas["TwoNumbers"];

export const LOOK_NAMES: Record<Look, string> = {
  "15m": "Last 15 minutes",
  "1h": "Last hour",
  "6h": "Last 6 hours",
  "24h": "Last 24 hours",
  "7d": "Last 7 days",
};

const OUTCOMES: Record<Diagnosis["outcome"], { title: string; tone: Tone; about: string }> = {
  found: { title: "Something is wrong", tone: "bad", about: "The costliest cause comes first." },
  burning: {
    title: "An alert fires, no cause found above its threshold",
    tone: "bad",
    about: "The requests that burnt the error budget are listed first.",
  },
  nothing_found: {
    title: "No cause found above its threshold",
    tone: "good",
    about: "Each cause that was checked is listed with its threshold.",
  },
  not_enough_evidence: {
    title: "Not enough data",
    tone: "warn",
    about: "There are too few measurements for a diagnosis.",
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
        <FullTime at={found.end} />, compared with {count(found.requests_before)} of the window before.
        {found.sampled_share !== null &&
          ` Times are from a random sample of ${percent(found.sampled_share)} of the answered requests; counts cover all requests.`}
      </Notice>
      {found.burning.map((each) => (
        <Alert key={`${each.tier}-${each.length}`} burning={each} />
      ))}
      {found.primary && <Cause cause={found.primary} title="First" />}
      {found.second.map((each) => (
        <Cause key={each.cause} cause={each} title="Then" />
      ))}
      {found.explained.length > 0 && (
        <Card title="Consequences of the first cause" about="These probably disappear with the first cause.">
          <ul className="lines">
            {found.explained.map((each) => (
              <li key={each.cause}>
                <strong>{words(each.cause)}</strong>: <Coded text={each.evidence.join(" ")} />
              </li>
            ))}
          </ul>
        </Card>
      )}
      <NumbersOf rows={found.numbers} />
      <div className="grid-2">
        <Lines
          title="Below their thresholds"
          about="Checked causes, and the thresholds that they did not reach."
          lines={byThreshold(found.clear)}
        />
        <Lines
          title="Not enough data"
          about="Measurements that are missing."
          lines={found.unknown.map((each) => `${words(each.cause)}: ${each.why}`)}
        />
        <Lines title="Questions" about="Questions that numbers cannot answer." lines={found.questions} />
        <Lines title="Too few requests" about="Classes without a judgment." lines={found.not_judged} />
      </div>
    </div>
  );
}

/** One line for each threshold: many causes share one. */
export function byThreshold(clear: Diagnosis["clear"]): string[] {
  const causes = new Map<string, string[]>();
  for (const each of clear)
    causes.set(each.threshold, [...(causes.get(each.threshold) ?? []), words(each.cause)]);
  return [...causes].map(([threshold, names]) => `${names.join(", ")}: ${threshold}`);
}

const MISSED: Record<string, string> = {
  late_first_token: "The first token came late",
  slow_tokens: "Tokens came slowly",
  long_gap: "A gap between two tokens was too long",
};

function Alert({ burning }: { burning: Burning }) {
  const listed = burning.burnt.reduce((sum, each) => sum + each.requests, 0);
  const left = burning.looked_at - listed;
  return (
    <Card
      title={`Alert: ${burning.tier}, ${burning.length} prompts`}
      about={burning.told}
      actions={<Badge tone="bad">fires</Badge>}
    >
      <div className="stack-tight">
        <h3>The requests that burnt the budget</h3>
        <ul className="lines">
          {burning.burnt.map((each) => (
            <li key={`${each.what} ${each.model} ${each.pool} ${each.organization}`}>
              <strong>{count(each.requests)}</strong> · {MISSED[each.what] ?? <code>{each.what}</code>}
              {each.model && ` · ${each.model}`}
              {each.pool && ` on ${each.pool}`} · {each.organization}
            </li>
          ))}
          {left > 0 && <li>{count(left)} others</li>}
        </ul>
        {burning.looked_at < burning.bad && (
          <p className="quiet">
            These are the newest {count(burning.looked_at)} of {count(burning.bad)} bad requests.
          </p>
        )}
      </div>
    </Card>
  );
}

/** A sentence in which `commands` stand between backticks. */
function Coded({ text }: { text: string }) {
  const parts = text.split("`").map((part, at) => ({ part, at }));
  return <>{parts.map(({ part, at }) => (at % 2 ? <code key={at}>{part}</code> : part))}</>;
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
      actions={<Badge tone={cause.new ? "bad" : "warn"}>{cause.new ? "new" : "not new"}</Badge>}
    >
      <div className="stack-tight">
        <h3>Evidence</h3>
        <ul className="lines">
          {cause.evidence.map((each) => (
            <li key={each}>
              <Coded text={each} />
            </li>
          ))}
        </ul>
        {cause.fixes.length > 0 && (
          <>
            <h3>What to do</h3>
            <ol className="lines">
              {cause.fixes.map((each) => (
                <li key={each.fix}>
                  <Coded text={each.told} />
                </li>
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
                  {words(each.fix)}: <Coded text={each.why} />
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
    <Card title="TTFT and TPOT" about="Time to first token, and time per output token after it.">
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
          <li key={line}>
            <Coded text={line} />
          </li>
        ))}
      </ul>
    </Card>
  );
}
