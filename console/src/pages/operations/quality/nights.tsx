/** Nights of evals: when the last and the next one are, what is missing, each night's verdict, and the rollback that a
 * fail after a promotion offers. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment, useState } from "react";
import { api, read } from "../../../api/client";
import type { List } from "../../../api/list";
import { StateBadge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Empty, Notice } from "../../../components/notice";
import { Card } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { absolute } from "../../../format/time";
import { useMyself } from "../../../shell/session";
import { points } from "./eval-words";
import { AGAINST, lastTold, type Night, nextTold, notable, type SliceNight } from "./night-words";
import { ReasonForm, rollBack } from "./reason-form";

/** When nights were and will be asked, and what is missing. */
export function NightStatusCard() {
  const found = useQuery({
    queryKey: ["eval-nights", "status"],
    queryFn: () => read(api.GET("/admin/v1/evals/nights/status")),
  });
  if (!found.data) return null;
  const { last, plan, missing } = found.data;
  const next = nextTold(found.data);
  return (
    <Card
      title="Nights"
      about="Every model answers the same items again every fourth night, at the lowest priority."
    >
      <div className="stack-tight">
        <dl className="facts">
          {last.map((each) => (
            <Fragment key={each.model}>
              <dt>Latest night, {each.model}</dt>
              <dd>
                <StateBadge state={each.decision ?? each.status} /> {each.night}: {lastTold(each)}
              </dd>
            </Fragment>
          ))}
          {last.length === 0 && (
            <>
              <dt>Latest night</dt>
              <dd>none yet</dd>
            </>
          )}
          <dt>Next night</dt>
          <dd>
            {plan?.next_at && next ? (
              <>
                <Time at={plan.next_at} />, {absolute(plan.next_at)}: {next}
              </>
            ) : (
              "none"
            )}
          </dd>
        </dl>
        {missing.length > 0 && (
          <Notice tone="warn" title="Missing">
            {missing.map((each) => (
              <p key={each}>{each}</p>
            ))}
          </Notice>
        )}
      </div>
    </Card>
  );
}

export function Nights({ list }: { list: List<Night> }) {
  const { canOperate } = useMyself();
  const [undoing, setUndoing] = useState<Night | null>(null);
  const writes = canOperate("releases.write");
  const columns: Column<Night>[] = [
    {
      id: "night",
      heading: "Night",
      value: (row) => row.night,
      cell: (row) => (
        <Link
          className="primary-cell nowrap-cell"
          to="/operations/evals/runs/$runId"
          params={{ runId: row.run_id }}
        >
          {row.night}
        </Link>
      ),
    },
    { id: "model", heading: "Model", value: (row) => row.model },
    { id: "pool", heading: "Pool", value: (row) => row.pool },
    {
      id: "decision",
      heading: "Verdict",
      value: (row) => row.decision,
      cell: (row) => <StateBadge state={row.decision} />,
    },
    {
      id: "why",
      heading: "Why",
      value: (row) => row.reason,
      cell: (row) => <Why night={row} />,
    },
    {
      id: "changed",
      heading: "Changed",
      value: (row) => row.changed.join("; "),
      cell: (row) =>
        row.changed.length > 0 ? row.changed.join("; ") : <span className="quiet">nothing</span>,
    },
    {
      id: "rollback",
      heading: "Rollback",
      value: (row) => row.rollback_release_id,
      cell: (row) =>
        row.rollback_release_id === null ? null : writes ? (
          <Button size="small" kind="danger" onClick={() => setUndoing(row)}>
            Roll back…
          </Button>
        ) : (
          <Link to="/operations/releases/$releaseId" params={{ releaseId: row.rollback_release_id }}>
            the release
          </Link>
        ),
    },
  ];
  return (
    <>
      <Table
        label="Nights"
        columns={columns}
        list={list}
        rowKey={(row) => row.run_id}
        csvName="nights of evals"
        empty={
          <Empty title="No night has been judged">The card above shows the time of the next night.</Empty>
        }
      />
      {undoing && <Undo night={undoing} onClose={() => setUndoing(null)} />}
    </>
  );
}

function Why({ night }: { night: Night }) {
  const found = notable(night);
  if (found.length === 0) return <>{night.reason}</>;
  return (
    <span className="why-cell" title={found.map((each) => `${each.slice}: ${each.reason}`).join("\n")}>
      {night.reason}. {found[0]?.slice}: {found[0]?.reason}
    </span>
  );
}

function Undo({ night, onClose }: { night: Night; onClose: () => void }) {
  return (
    <ReasonForm
      title={`Roll ${night.model} back to its previous version?`}
      submit="Roll back"
      danger
      suggested={`the night of ${night.night}: ${night.reason}`}
      act={(reason) => rollBack(night.rollback_release_id ?? "", reason)}
      done="The promotion is undone."
      onClose={onClose}
    >
      <p>
        The pool that served {night.model} before the release serves it again within a second. Running
        requests end on their current engines.
      </p>
    </ReasonForm>
  );
}

/** A slice's nights, the newest last: a mark each, and the newest in words. */
export function SliceNights({ nights }: { nights: SliceNight[] }) {
  const newest = nights.at(-1);
  if (!newest) return null;
  const against = newest.against === null ? "" : `, against ${AGAINST[newest.against] ?? newest.against}`;
  return (
    <>
      <h3>Nights</h3>
      <ol className="night-marks" aria-label={`Verdicts of ${nights.length} nights`}>
        {nights.map((each) => (
          <li
            key={each.night.run_id}
            data-decision={each.decision}
            title={`${each.night.night}, ${each.night.model}: ${each.decision}, ${each.reason}`}
          >
            <span className="visually-hidden">{`${each.night.night}: ${each.decision}`}</span>
          </li>
        ))}
      </ol>
      <p className="small">
        <StateBadge state={newest.decision} /> {newest.night.night}
        {newest.items > 0 && <>, {points(newest.difference, 1)}</>}
        {against}: {newest.reason}
      </p>
    </>
  );
}
