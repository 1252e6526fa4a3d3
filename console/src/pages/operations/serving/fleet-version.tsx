import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, read } from "../../../api/client";
import { useAction } from "../../../components/action";
import { Button } from "../../../components/button";
import { Confirm } from "../../../components/dialog";
import { Filters, TextFilter } from "../../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../../components/notice";
import { Card, Page } from "../../../components/page";
import { Table } from "../../../components/table";
import { count } from "../../../format/number";
import { useMyself } from "../../../shell/session";

const route = getRouteApi("/signed/operations/fleet/versions/$version");

export function FleetVersion() {
  const { version } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { canOperate } = useMyself();
  const [returning, setReturning] = useState(false);
  const since = search.since && /^\d{1,15}$/.test(search.since) ? Number(search.since) : undefined;
  const query = useQuery({
    queryKey: ["fleet", "version", version, since],
    queryFn: () =>
      read(
        api.GET("/admin/v1/fleet/versions/{fleet_version}", {
          params: { path: { fleet_version: version }, query: since === undefined ? {} : { since } },
        }),
      ),
  });
  const newest = useQuery({
    queryKey: ["fleet", "standing"],
    queryFn: () => read(api.GET("/admin/v1/fleet")),
  });
  const crumbs = [
    <Link key="fleet" to="/operations/fleet">
      Fleet
    </Link>,
    <Link key="versions" to="/operations/fleet/versions">
      Versions
    </Link>,
  ];
  if (query.error || !query.data)
    return (
      <Page title={`Version ${version}`} crumbs={crumbs}>
        {query.error ? <ErrorNotice error={query.error} retry={() => void query.refetch()} /> : <Loading />}
      </Page>
    );
  const found = query.data;
  const inForce = newest.data?.version === found.version;
  return (
    <Page
      title={`Version ${found.version}`}
      about={
        inForce
          ? "In force."
          : `Made by ${found.action ?? "settings"}${found.actor ? `, ${found.actor}` : ""}.`
      }
      crumbs={crumbs}
      actions={
        !inForce &&
        newest.data &&
        canOperate("fleet.write") && (
          <Button kind="danger" onClick={() => setReturning(true)}>
            Go back to this version
          </Button>
        )
      }
    >
      <div className="stack">
        <Card
          title="Differences"
          about={
            since === undefined
              ? "Compared with the version before."
              : since === 0
                ? "Compared with an empty fleet."
                : `Compared with version ${since}.`
          }
        >
          <Filters>
            <TextFilter
              label="Compare with version"
              placeholder={String(Math.max(0, found.version - 1))}
              value={search.since}
              onChange={(value) =>
                void navigate({ search: (old) => ({ ...old, since: value }), replace: true })
              }
            />
          </Filters>
          <Differences lines={found.differences} />
        </Card>
        <Card title="Models" about={`${count(found.models.length)} in this version.`}>
          <Table
            label="Models"
            columns={[
              { id: "name", heading: "Model", value: (row) => row.name },
              { id: "tier", heading: "Tier", value: (row) => row.tier },
              { id: "pool", heading: "Pool", value: (row) => row.pool },
              {
                id: "context_tokens",
                heading: "Context",
                right: true,
                value: (row) => row.context_tokens,
                cell: (row) => count(row.context_tokens),
              },
              { id: "aliases", heading: "Aliases", value: (row) => row.aliases?.join(", ") },
            ]}
            list={found.models}
            rowKey={(row) => row.name}
            empty={<Empty title="No models" />}
          />
        </Card>
        <Card title="Pools">
          <Table
            label="Pools"
            columns={[
              { id: "name", heading: "Pool", value: (row) => row.name },
              { id: "driver", heading: "Driver", value: (row) => row.driver },
              {
                id: "replicas",
                heading: "Replicas (weight)",
                value: (row) => row.replicas?.map((each) => `${each.id} (${each.weight ?? 1})`).join(", "),
                cell: (row) => (
                  <span className="wrap">
                    {row.replicas?.map((each) => `${each.id} (${each.weight ?? 1})`).join(", ") || "none"}
                  </span>
                ),
              },
            ]}
            list={found.pools}
            rowKey={(row) => row.name}
            empty={<Empty title="No pools" />}
          />
        </Card>
      </div>
      {returning && newest.data && (
        <GoBack version={found.version} current={newest.data.version} onClose={() => setReturning(false)} />
      )}
    </Page>
  );
}

function Differences({ lines }: { lines: string[] }) {
  if (lines.length === 0) return <p className="quiet">Nothing.</p>;
  return (
    <ul className="lines">
      {lines.map((line) => (
        <li key={line}>
          <code className="wrap">{line}</code>
        </li>
      ))}
    </ul>
  );
}

/** Asks first what would become different, and says so. */
function GoBack({ version, current, onClose }: { version: number; current: number; onClose: () => void }) {
  const navigate = useNavigate();
  const headers = { "If-Match": `"${current}"` };
  const tried = useQuery({
    queryKey: ["fleet", "rollback", version, current],
    queryFn: () =>
      read(
        api.POST("/admin/v1/fleet/rollback", {
          params: { query: { dry_run: true }, header: headers },
          body: { version },
        }),
      ),
    retry: false,
  });
  const back = useAction(
    () => read(api.POST("/admin/v1/fleet/rollback", { params: { header: headers }, body: { version } })),
    {
      quiet: true,
      stale: ["fleet"],
      done: (edit) => `Version ${edit.version} is in force, with the contents of version ${version}.`,
      then: (edit) => {
        onClose();
        void navigate({
          to: "/operations/fleet/versions/$version",
          params: { version: String(edit.version) },
        });
      },
    },
  );
  return (
    <Confirm
      title={`Go back to version ${version}?`}
      action="Go back"
      busy={back.isPending || tried.isPending}
      error={back.error ?? tried.error}
      onConfirm={() => back.mutate(undefined)}
      onClose={onClose}
    >
      <p>This makes a new version with the contents of version {version}. No engine starts or stops.</p>
      {tried.data && <Differences lines={tried.data.differences} />}
    </Confirm>
  );
}
