import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { StateBadge } from "../../../components/badge";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Card, Facts, Page, Stats } from "../../../components/page";
import { Pending } from "../../../components/pending";
import { type Column, Table } from "../../../components/table";
import { FullTime, Time } from "../../../components/time";
import { count, milliseconds, percent } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { ReleaseActions } from "./release-actions";
import { ReleaseEvidence } from "./release-evidence";
import { ReleaseLatency } from "./release-latency";
import { Reason } from "./release-reason";
import {
  hasEnded,
  leftOut,
  policyOf,
  type Release,
  sharePercent,
  stageName,
  thresholdsOf,
  verdictOf,
} from "./release-words";
import { StageTrack } from "./stage-track";
import "./quality.css";

type Step = Schemas["ReleaseStep"];
const route = getRouteApi("/signed/operations/releases/$releaseId");

export function ReleasePage() {
  const { releaseId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { canOperate } = useMyself();
  const params = { path: { release_id: releaseId } };
  const release = useQuery({
    queryKey: ["release", releaseId],
    queryFn: () => read(api.GET("/admin/v1/releases/{release_id}", { params })),
  });
  const evidence = useQuery({
    queryKey: ["release-evidence", releaseId],
    queryFn: () => read(api.GET("/admin/v1/releases/{release_id}/evidence", { params })),
  });
  const live = [
    ["release", releaseId],
    ["release-evidence", releaseId],
    ["release-steps", releaseId],
    ["release-latency", releaseId],
  ];
  useLive(["releases"], release.data && hasEnded(release.data.state) ? [] : live);
  if (!release.data) return <Pending title="Release" query={release} />;
  const found = release.data;
  const began = found.moves.find((move) => move.event === "begin")?.at ?? found.created_at;
  return (
    <Page
      title={`${found.model}: ${found.baseline_pool} → ${found.candidate_pool}`}
      crumbs={[
        <Link key="releases" to="/operations/releases">
          Releases
        </Link>,
      ]}
      actions={canOperate("releases.write") && <ReleaseActions release={found} />}
    >
      <div className="stack">
        <Standing release={found} />
        {found.warnings.length > 0 && (
          <Notice tone="warn" title="Consider before you trust the evidence">
            {found.warnings.map((each) => (
              <p key={each}>{each}</p>
            ))}
          </Notice>
        )}
        <StageTrack release={found} />
        {found.state !== "waiting" && <ReleaseLatency release={found} began={began} />}
        <Stats
          figures={[
            { name: "State", value: <StateBadge state={found.state} /> },
            { name: "Share now", value: sharePercent(found.share), note: "of the sessions" },
            {
              name: "Stage",
              value: `${found.stage + 1} of ${found.stages.length}`,
              note: (
                <>
                  {stageName(found.stages[found.stage] ?? 0)}, {hasEnded(found.state) ? "ended" : "since"}{" "}
                  <Time at={found.ended_at ?? found.stage_began_at} />
                </>
              ),
            },
            {
              name: "Requests counted",
              value: count(found.consumed.reduce((sum, each) => sum + each.requests, 0)),
            },
          ]}
        />
        {evidence.error ? (
          <ErrorNotice error={evidence.error} retry={() => void evidence.refetch()} />
        ) : !evidence.data ? (
          <Loading lines={4} />
        ) : (
          <ReleaseEvidence
            release={found}
            evidence={evidence.data}
            began={began}
            check={search.check}
            onCheck={(check) =>
              void navigate({ search: (old) => ({ ...old, check }), replace: true, resetScroll: false })
            }
          />
        )}
        <Judged release={found} />
        <section className="stack-tight">
          <h2>Steps</h2>
          <Table
            label="Steps"
            columns={stepColumns(found)}
            list={[...found.moves].reverse()}
            rowKey={(row) => String(row.step)}
            empty={<Empty title="No steps yet" />}
          />
          <FoldedSteps release={found} />
        </section>
      </div>
    </Page>
  );
}

/** The steps that only counted evidence are many: they are read when somebody asks for them. */
function FoldedSteps({ release }: { release: Release }) {
  const [open, setOpen] = useState(false);
  const looks = release.consumed.reduce((sum, each) => sum + each.steps, 0);
  return (
    <details className="folded" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>All steps, with looks at the evidence ({count(looks)})</summary>
      {open && <EveryStep release={release} />}
    </details>
  );
}

function EveryStep({ release }: { release: Release }) {
  const steps = useList(["release-steps", release.id], (cursor) =>
    read(
      api.GET("/admin/v1/releases/{release_id}/steps", {
        params: { path: { release_id: release.id }, query: { limit: 100, cursor } },
      }),
    ),
  );
  return (
    <Table
      label="Every step"
      columns={stepColumns(release)}
      list={steps}
      rowKey={(row) => String(row.step)}
      csvName={`steps of ${release.id}`}
      empty={<Empty title="No steps yet" />}
    />
  );
}

/** Why it stands where it does, and what can be done. */
function Standing({ release }: { release: Release }) {
  const verdict = verdictOf(release);
  const missing = verdict?.missing ?? [];
  const beyond = leftOut(release);
  switch (release.state) {
    case "waiting":
      return (
        <Notice tone="warn" title="The release is waiting to begin; no traffic is split yet">
          <p>{release.waits_for || "The worker checks the baseline’s requests within a minute."}</p>
          <p className="quiet">
            Its thresholds come from the latencies of about a thousand requests that {release.baseline_pool}{" "}
            answered. The release begins by itself once there are enough.
          </p>
        </Notice>
      );
    case "running":
      return (
        <Notice
          title={
            release.waits_for ? "The release advances when" : "Each look at the evidence judges the release"
          }
        >
          {release.waits_for && (
            <p>
              <Reason text={release.waits_for} />
            </p>
          )}
          {missing.length > 0 && !release.waits_for && (
            <ul className="missing-list">
              {missing.map((each) => (
                <li key={each}>
                  still missing: <Reason text={each} />
                </li>
              ))}
            </ul>
          )}
          {beyond && (
            <p>
              One organization sends nearly all of the traffic: {count(beyond.sessions)} of its sessions were
              left out, because at most {beyond.share} of the evidence may come from one organization. The
              other organizations set the pace of the release. Promote it by hand, or set{" "}
              <code>worker.releases.organization_share</code> higher and start another release: a running
              release keeps the value from its start.
            </p>
          )}
          <p className="quiet">
            With little traffic a stage takes longer; no stage ends just because time has passed. The release
            is rolled back as soon as one harm test reaches its threshold.
          </p>
        </Notice>
      );
    case "held":
      return (
        <Notice tone="warn" title="The release is held in this stage">
          <p>
            <Reason text={release.waits_for || release.reason} />
          </p>
          <p className="quiet">
            {verdict?.decision === "inconclusive"
              ? "Its budget of evidence is spent. Resume it with more sessions, promote it by hand, or roll it back."
              : "Resume it, promote it by hand, or roll it back. The tests go on meanwhile, and roll it back if the candidate is worse."}
          </p>
        </Notice>
      );
    case "promoted":
      return (
        <Notice tone="good" title={`${release.candidate_pool} serves all of ${release.model}`}>
          <p>
            <Reason text={release.reason} />
          </p>
          <p className="quiet">
            {release.baseline_pool} serves {release.model} no more. Remove the pool when nothing else uses it.
          </p>
        </Notice>
      );
    case "rolled_back":
      return (
        <Notice tone="bad" title={`Rolled back: ${release.baseline_pool} serves all of ${release.model}`}>
          <p>
            <Reason text={release.reason} />
          </p>
          <p className="quiet">
            The data of its steps is kept: <code>slipstream releases replay {release.id}</code> judges it
            again. Fix the candidate and start another release.
          </p>
        </Notice>
      );
  }
}

/** What may be asked for beyond the judge's defaults; the others are shown by their own names. */
const MARGINS: Record<string, { name: string; share: boolean }> = {
  tolerance: { name: "Allowed increase of latency", share: true },
  error_margin: { name: "Allowed increase of failures", share: true },
  goodput_margin: { name: "Allowed increase of missed objectives", share: true },
  alpha: { name: "Chance that a good candidate is rolled back, at most", share: true },
  promotion_alpha: { name: "Chance that a worse candidate gets all traffic, at most", share: true },
  promoted_quantile: { name: "Quantile at which latency is tested", share: true },
  cold_requests: { name: "First requests of a stage left out", share: false },
  least_votes: { name: "Required votes of reviewers", share: false },
};

/** What it is judged by. */
function Judged({ release }: { release: Release }) {
  const policy = policyOf(release);
  const thresholds = thresholdsOf(release);
  const placed = (values: number[] | undefined) =>
    policy && values && values.length > 0
      ? policy.quantiles
          .map((q, at) => `p${Number((100 * q).toPrecision(4))} ${milliseconds(values[at])}`)
          .join(" · ")
      : "not judged";
  const margins = Object.entries(release.margins as Record<string, number>).flatMap(
    ([name, value]): [string, React.ReactNode][] => {
      const told = MARGINS[name];
      return told ? [[told.name, told.share ? percent(value) : count(value)]] : [];
    },
  );
  return (
    <Card
      title="How it is judged"
      about="Fixed at the start of the release, so that neither arm’s data can change it."
    >
      <Facts
        facts={[
          [
            "Control arm",
            release.control_pool || `the same pool (${release.baseline_pool}), with separate cache entries`,
          ],
          ...(release.engine_model
            ? [
                ["The engines’ name for the model", <code key="engine">{release.engine_model}</code>] as [
                  string,
                  React.ReactNode,
                ],
              ]
            : []),
          [
            "Copies",
            release.shadow_share === 0 ? (
              "none"
            ) : (
              <>
                {percent(release.shadow_share)} of the sessions, in every stage before 100 %
                {release.stages[0] === 0 &&
                  `; both pools answer ${count(release.shadow_least)} before the second stage`}
                ;{" "}
                <Link to="/operations/shadow" search={{ release: release.id }}>
                  results by stage
                </Link>
              </>
            ),
          ],
          ...(thresholds
            ? ([
                ["First token of the baseline", placed(thresholds.ttft_ms)],
                ["Longest gap of the baseline", placed(thresholds.itl_ms)],
              ] as [string, React.ReactNode][])
            : []),
          ...(policy
            ? ([
                ["Minimum sessions per arm", policy.least_units.map(count).join(", ")],
                ["Budget of evidence", `${count(policy.most_units + release.more_units)} sessions`],
              ] as [string, React.ReactNode][])
            : []),
          [
            "Slices",
            release.slices.length === 0 ? (
              "none"
            ) : (
              <>
                {release.slices.join(", ")}, at most{" "}
                {Number(((release.slice_rule.margin ?? 0.02) * 100).toPrecision(4))} points lower
                {Object.entries(release.slice_rule.margins ?? {}).map(
                  ([name, margin]) => `, ${name} ${Number((margin * 100).toPrecision(4))}`,
                )}{" "}
                {release.comparison_id && (
                  <Link
                    to="/operations/evals/comparisons/$comparisonId"
                    params={{ comparisonId: release.comparison_id }}
                  >
                    their comparison
                  </Link>
                )}
              </>
            ),
          ],
          ...margins,
          ["Started", <FullTime key="started" at={release.created_at} />],
          ["Id", <code key="id">{release.id}</code>],
        ]}
      />
    </Card>
  );
}

function stepColumns(release: Release): Column<Step>[] {
  const name = (stage: number) => stageName(release.stages[stage] ?? 0);
  return [
    { id: "step", heading: "Step", right: true, value: (row) => row.step },
    { id: "at", heading: "When", value: (row) => row.at, cell: (row) => <Time at={row.at} /> },
    {
      id: "event",
      heading: "What",
      value: (row) => row.event,
      cell: (row) => <span className="primary-cell">{row.event.replaceAll("_", " ")}</span>,
    },
    {
      id: "stage",
      heading: "Stage",
      value: (row) => row.to_stage + 1,
      cell: (row) =>
        row.stage === row.to_stage ? name(row.stage) : `${name(row.stage)} → ${name(row.to_stage)}`,
    },
    {
      id: "requests",
      heading: "Requests",
      right: true,
      value: (row) => row.requests,
      cell: (row) => count(row.requests),
    },
    { id: "actor", heading: "Who", value: (row) => row.actor },
    {
      id: "reason",
      heading: "Why",
      value: (row) => row.reason,
      cell: (row) => (
        <span className="why-cell" title={row.reason}>
          <Reason text={row.reason} />
        </span>
      ),
    },
  ];
}
