import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useLive } from "../../api/live";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { milliseconds } from "../../format/number";
import { useProjects } from "./names";

type Summary = Schemas["RequestSummary"];
const route = getRouteApi("/signed/org/$organizationId/requests");

export function Requests() {
  const { organizationId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const status = search.status && /^[1-5]\d\d$/.test(search.status) ? Number(search.status) : undefined;
  const projects = useProjects(organizationId);
  const query = {
    ...(status === undefined ? {} : { status }),
    ...(search.error_code ? { error_code: search.error_code } : {}),
    ...(search.project_id ? { project_id: search.project_id } : {}),
    ...(search.key_id ? { key_id: search.key_id } : {}),
  };
  useLive(["requests"], [["requests", organizationId]]);
  const list = useList(["requests", organizationId, query], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/requests", {
        params: { path: { organization_id: organizationId }, query: { limit: 100, cursor, ...query } },
      }),
    ),
  );
  const columns: Column<Summary>[] = [
    {
      id: "request_id",
      heading: "Request",
      value: (row) => row.request_id,
      cell: (row) => (
        <Link
          to="/org/$organizationId/requests/$requestId"
          params={{ organizationId, requestId: row.request_id }}
          className="mono"
        >
          {row.request_id}
        </Link>
      ),
    },
    {
      id: "recorded_at",
      heading: "When",
      value: (row) => row.recorded_at,
      cell: (row) => <Time at={row.recorded_at} />,
    },
    {
      id: "decision",
      heading: "Outcome",
      value: (row) => row.decision,
      cell: (row) => <StateBadge state={row.decision} />,
    },
    { id: "status", heading: "Status", right: true, value: (row) => row.status },
    { id: "error_code", heading: "Error", value: (row) => row.error_code },
    { id: "model", heading: "Model", value: (row) => row.model },
    {
      id: "ttft_ms",
      heading: "First token",
      right: true,
      value: (row) => row.ttft_ms,
      cell: (row) => milliseconds(row.ttft_ms),
    },
    {
      id: "total_ms",
      heading: "In all",
      right: true,
      value: (row) => row.total_ms,
      cell: (row) => milliseconds(row.total_ms),
    },
  ];
  return (
    <Page
      title="Requests"
      about="What happened to each request, refused ones included. Never what was in it."
    >
      <div className="stack">
        <Card
          title="Why was a request limited, slow or wrong?"
          about="By its x-request-id, or the id of its answer."
        >
          <ById organizationId={organizationId} />
        </Card>
        <div>
          <Filters>
            <SelectFilter
              label="Project"
              all="All"
              options={
                projects.data?.map((each) => each.id) ?? (search.project_id ? [search.project_id] : [])
              }
              names={Object.fromEntries((projects.data ?? []).map((each) => [each.id, each.name]))}
              value={search.project_id}
              onChange={(project_id) => set({ project_id })}
            />
            <TextFilter
              label="Status"
              placeholder="429"
              value={search.status}
              onChange={(value) => set({ status: value })}
            />
            <TextFilter
              label="Error code"
              placeholder="rate_limit_exceeded"
              value={search.error_code}
              onChange={(error_code) => set({ error_code })}
            />
            <TextFilter label="Key’s id" value={search.key_id} onChange={(key_id) => set({ key_id })} />
          </Filters>
          <Table
            label="Requests"
            columns={columns}
            list={list}
            rowKey={(row) => row.request_id}
            csvName="requests"
            empty={
              <Empty title="No request matches">
                Clear the filters. If there never was one, it shows here as soon as somebody sends one with a
                key of a project.
              </Empty>
            }
          />
        </div>
      </div>
    </Page>
  );
}

function ById({ organizationId }: { organizationId: string }) {
  const navigate = useNavigate();
  const [id, setId] = useState("");
  const go = (event: FormEvent) => {
    event.preventDefault();
    const requestId = id.trim();
    if (requestId !== "")
      void navigate({
        to: "/org/$organizationId/requests/$requestId",
        params: { organizationId, requestId },
      });
  };
  return (
    <form className="by-id" onSubmit={go}>
      <TextField label="Request’s id" value={id} onChange={(event) => setId(event.currentTarget.value)} />
      <Button type="submit" kind="primary">
        Find out
      </Button>
    </form>
  );
}
