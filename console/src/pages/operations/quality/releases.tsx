import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { StateBadge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Filters, SelectFilter, TextFilter } from "../../../components/filters";
import { Empty } from "../../../components/notice";
import { Page } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { filtersOf } from "../../../shell/search";
import { useMyself } from "../../../shell/session";
import { RELEASE_STATES } from "./choices";
import { ReleaseForm } from "./release-form";
import { Reason } from "./release-reason";
import { hasEnded, sharePercent } from "./release-words";
import "./quality.css";

type Summary = Schemas["ReleaseSummary"];
const route = getRouteApi("/signed/operations/releases");

export function Releases() {
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { canOperate } = useMyself();
  const [starting, setStarting] = useState(false);
  const list = useList(["releases", search], (cursor) =>
    read(api.GET("/admin/v1/releases", { params: { query: { limit: 100, cursor, ...search } } })),
  );
  useLive(["releases"], [["releases"]]);
  const columns: Column<Summary>[] = [
    {
      id: "model",
      heading: "Model",
      value: (row) => row.model,
      cell: (row) => (
        <Link className="primary-cell" to="/operations/releases/$releaseId" params={{ releaseId: row.id }}>
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
          {row.candidate_pool} <span className="quiet">for {row.baseline_pool}</span>
        </>
      ),
    },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => row.state,
      cell: (row) => <StateBadge state={row.state} />,
    },
    { id: "stage", heading: "Stage", right: true, value: (row) => row.stage + 1 },
    {
      id: "share",
      heading: "Share now",
      right: true,
      value: (row) => row.share,
      cell: (row) => sharePercent(row.share),
    },
    {
      id: "why",
      heading: "Why it is at this stage",
      value: (row) => row.waits_for || row.reason,
      cell: (row) => (
        <span className="why-cell">
          <Reason text={row.waits_for || row.reason} />
        </span>
      ),
    },
    {
      id: "since",
      heading: "Since",
      value: (row) => row.ended_at ?? row.stage_began_at,
      cell: (row) => <Time at={hasEnded(row.state) ? row.ended_at : row.stage_began_at} />,
    },
    {
      id: "created_at",
      heading: "Started",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ];
  const start = canOperate("releases.write") && (
    <Button kind="primary" icon="plus" onClick={() => setStarting(true)}>
      Start a release
    </Button>
  );
  const filtered = search.model !== undefined || search.state !== undefined;
  return (
    <Page
      title="Releases"
      about="A release moves a model’s sessions to a candidate pool in stages, as far as its measurements allow."
      actions={start}
    >
      <Filters>
        <TextFilter
          label="Model"
          value={search.model}
          onChange={(model) => void navigate({ search: (old) => ({ ...old, model }), replace: true })}
        />
        <SelectFilter
          label="State"
          all="All"
          options={RELEASE_STATES}
          value={search.state}
          onChange={(state) => void navigate({ search: (old) => ({ ...old, state }), replace: true })}
        />
      </Filters>
      <Table
        label="Releases"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="releases"
        empty={
          filtered ? (
            <Empty title="No such release">Clear the filters, or choose another state.</Empty>
          ) : (
            <Empty title="No releases yet" action={start}>
              Put the new version into its own pool, with “Add a pool” on the{" "}
              <Link to="/operations/fleet">fleet page</Link>. A release then moves the model’s sessions to
              that pool in stages, and moves them back if the new version is worse.
            </Empty>
          )
        }
      />
      {starting && <ReleaseForm onClose={() => setStarting(false)} />}
    </Page>
  );
}
