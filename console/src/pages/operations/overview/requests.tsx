/** Requests of all organizations. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, read } from "../../../api/client";
import { readAll, useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { Button } from "../../../components/button";
import { TextField } from "../../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../../components/filters";
import { Empty } from "../../../components/notice";
import { Card, Page } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { TIERS } from "../../../shell/choices";
import { useMoney } from "../../../shell/money";
import { requestColumns, type Summary, shortId } from "../../tenants/request-columns";

const route = getRouteApi("/signed/operations/requests");
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const STALE_MS = 60_000;

function useOrganizationNames() {
  return useQuery({
    queryKey: ["organizations", "names"],
    staleTime: STALE_MS,
    queryFn: async () => {
      const all = await readAll((cursor) =>
        read(api.GET("/admin/v1/organizations", { params: { query: { limit: 1000, cursor } } })),
      );
      return Object.fromEntries(all.map((each) => [each.id, each.name]));
    },
  });
}

export function DeploymentRequests() {
  useLive(["requests"], [["requests", "deployment"]]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const money = useMoney();
  const names = useOrganizationNames();
  const status = search.status && /^[1-5]\d\d$/.test(search.status) ? Number(search.status) : undefined;
  const query = {
    ...(search.organization_id && UUID.test(search.organization_id)
      ? { organization_id: search.organization_id }
      : {}),
    ...(status === undefined ? {} : { status }),
    ...(search.error_code ? { error_code: search.error_code } : {}),
    ...(search.tier ? { tier: search.tier } : {}),
    ...(search.model ? { model: search.model } : {}),
    ...(search.pool ? { pool: search.pool } : {}),
  };
  const list = useList(["requests", "deployment", query], (cursor) =>
    read(api.GET("/admin/v1/requests", { params: { query: { limit: 100, cursor, ...query } } })),
  );
  const columns: Column<Summary>[] = [
    {
      id: "request_id",
      heading: "Request",
      value: (row) => row.request_id,
      cell: (row) => (
        <Link
          to="/operations/requests/$requestId"
          params={{ requestId: row.request_id }}
          className="mono"
          title={row.request_id}
        >
          {shortId(row.request_id)}
        </Link>
      ),
    },
    {
      id: "organization",
      heading: "Organization",
      value: (row) => names.data?.[row.organization_id] ?? row.organization_id,
      cell: (row) => (
        <Link to="/org/$organizationId" params={{ organizationId: row.organization_id }}>
          {names.data?.[row.organization_id] ?? row.organization_id}
        </Link>
      ),
    },
    ...requestColumns(money),
  ];
  return (
    <Page
      title="All requests"
      about="Of all organizations, the last 24 hours. What happened to each, never what was in it."
    >
      <div className="stack">
        <Card
          title="Why was a request limited, slow or wrong?"
          about="By its x-request-id, or the id of its answer, however old it is."
        >
          <ById />
        </Card>
        <div>
          <Filters>
            <SelectFilter
              label="Organization"
              all="All"
              options={Object.keys(
                names.data ?? (search.organization_id ? { [search.organization_id]: "" } : {}),
              )}
              names={names.data ?? {}}
              value={search.organization_id}
              onChange={(organization_id) => set({ organization_id })}
            />
            <SelectFilter
              label="Tier"
              all="Both"
              options={TIERS}
              value={search.tier}
              onChange={(tier) => set({ tier })}
            />
            <TextFilter
              label="Status"
              placeholder="503"
              value={search.status}
              onChange={(value) => set({ status: value })}
            />
            <TextFilter
              label="Error code"
              placeholder="overloaded"
              value={search.error_code}
              onChange={(error_code) => set({ error_code })}
            />
            <TextFilter label="Model" value={search.model} onChange={(model) => set({ model })} />
            <TextFilter label="Pool" value={search.pool} onChange={(pool) => set({ pool })} />
          </Filters>
          <Table
            label="Requests"
            columns={columns}
            list={list}
            rowKey={(row) => row.request_id}
            csvName="requests of all organizations"
            empty={
              <Empty title="No request matches">
                Clear the filters, or look for an older one by its id. If there never was one: make a key in a
                project and send a request with it.
              </Empty>
            }
          />
        </div>
      </div>
    </Page>
  );
}

function ById() {
  const navigate = route.useNavigate();
  const [id, setId] = useState("");
  const go = (event: FormEvent) => {
    event.preventDefault();
    const requestId = id.trim();
    if (requestId !== "") void navigate({ to: "/operations/requests/$requestId", params: { requestId } });
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
