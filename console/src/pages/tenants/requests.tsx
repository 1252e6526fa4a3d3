import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, read } from "../../api/client";
import { useList } from "../../api/list";
import { useLive } from "../../api/live";
import { Button } from "../../components/button";
import { TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { useMoney } from "../../shell/money";
import { LOOKS, lengthMs } from "../operations/serving/choices";
import { LOOK_NAMES } from "./diagnosis-of";
import { useProjects } from "./names";
import { requestColumns, type Summary, shortId } from "./request-columns";

const route = getRouteApi("/signed/org/$organizationId/requests");
const MINUTE_MS = 60_000;

export function Requests() {
  const { organizationId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const status = search.status && /^[1-5]\d\d$/.test(search.status) ? Number(search.status) : undefined;
  const money = useMoney();
  const projects = useProjects(organizationId);
  // by whole minutes: the query's key is the same until then
  const minute = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const query = {
    ...(status === undefined ? {} : { status }),
    ...(search.error_code ? { error_code: search.error_code } : {}),
    ...(search.project_id ? { project_id: search.project_id } : {}),
    ...(search.key_id ? { key_id: search.key_id } : {}),
    ...(search.model ? { model: search.model } : {}),
    ...(search.since ? { start: new Date(minute - lengthMs(search.since)).toISOString() } : {}),
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
          title={row.request_id}
        >
          {shortId(row.request_id)}
        </Link>
      ),
    },
    ...requestColumns(money),
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
            <SelectFilter
              label="Arrived"
              all="Any time"
              options={LOOKS}
              names={LOOK_NAMES}
              value={search.since}
              onChange={(since) => set({ since })}
            />
            <TextFilter label="Model" value={search.model} onChange={(model) => set({ model })} />
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
