import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read } from "../../../api/client";
import { useFleetModels } from "../../../api/fleet-names";
import { useLive } from "../../../api/live";
import { Badge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Card, Page, Stats } from "../../../components/page";
import { Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count, short } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { AddModel, AddPool } from "./add-model";
import { LIVE_FLEET, useLiveFleet } from "./live-fleet";
import { modelsTold, servedTold } from "./pool-words";
import type { LiveReplica } from "./replica-state";
import { type LivePool, Replicas } from "./replicas";

const STANDING = ["fleet", "standing"];
const SERVING_EVERY_MS = 15_000;
const HOUR_MS = 3_600_000;

export function Fleet() {
  useLive(["fleet"], [LIVE_FLEET, STANDING]);
  const { canOperate } = useMyself();
  const [adding, setAdding] = useState<"model" | "pool" | null>(null);
  const live = useLiveFleet();
  const pools = (live.data?.pools ?? []).toSorted(
    (one, other) => Number(isWell(one)) - Number(isWell(other)),
  );
  const names = pools.map((each) => each.name);
  const replicas = pools.flatMap((pool) => pool.replicas);
  const sum = (figure: (replica: LiveReplica) => number) =>
    replicas.reduce((all, replica) => all + figure(replica), 0);
  return (
    <Page
      title="Fleet"
      about="Every pool and replica as the router sees it now."
      actions={
        <>
          {canOperate("fleet.write") && (
            <>
              <Button kind="primary" icon="plus" onClick={() => setAdding("model")}>
                Add a model
              </Button>
              <Button icon="plus" onClick={() => setAdding("pool")}>
                Add a pool
              </Button>
            </>
          )}
          <Link className="button" to="/operations/fleet/versions">
            Versions
          </Link>
        </>
      }
    >
      <div className="stack">
        {live.error && <ErrorNotice error={live.error} retry={() => void live.refetch()} />}
        {!live.data && !live.error && <Loading lines={8} />}
        {live.data && (
          <>
            <Stats
              figures={[
                {
                  name: "Usable replicas",
                  value: count(sum((each) => Number(each.usable))),
                  note: `of ${count(replicas.length)}`,
                },
                { name: "Running", value: count(sum((each) => each.leases)) },
                {
                  name: "Waiting for a slot",
                  value: count(pools.reduce((all, pool) => all + pool.queued, 0)),
                },
                { name: "Prompt tokens to compute", value: short(sum((each) => each.prefill_tokens)) },
                { name: "Gateways", value: count(live.data.gateways) },
              ]}
            />
            {pools.length === 0 && (
              <Empty title="The fleet has no pool">
                Add a model with the URL of its engine, or put a pool into the settings (
                <code>[[pools]]</code>).
              </Empty>
            )}
            {pools.length > 0 && <Pools pools={pools} />}
          </>
        )}
        <Standing routerVersion={live.data?.version} />
        {adding === "model" && <AddModel pools={names} onClose={() => setAdding(null)} />}
        {adding === "pool" && <AddPool pools={names} onClose={() => setAdding(null)} />}
      </div>
    </Page>
  );
}

/** Whether all of its replicas that should serve can. */
function isWell(pool: LivePool): boolean {
  return pool.replicas.every((each) => each.usable || each.draining || each.weight === 0);
}

/** Every replica in one table, under what its pool serves and how it does. */
function Pools({ pools }: { pools: LivePool[] }) {
  const models = useFleetModels();
  const serving = useQuery({
    queryKey: ["fleet", "serving"],
    refetchInterval: SERVING_EVERY_MS,
    queryFn: () =>
      read(
        api.GET("/admin/v1/serving", {
          params: {
            query: {
              start: new Date(Date.now() - HOUR_MS).toISOString(),
              bucket: "all",
              group_by: ["pool"],
            },
          },
        }),
      ),
  });
  const without = pools.filter((pool) => pool.replicas.length === 0);
  return (
    <>
      {without.length > 0 && (
        <Notice tone="warn" title="Pools without a replica">
          {without.map((pool) => (
            <p key={pool.name}>
              <Link to="/operations/fleet/pools/$pool" params={{ pool: pool.name }}>
                {pool.name}
              </Link>
              : requests for its models are refused until it has one.
            </p>
          ))}
        </Notice>
      )}
      <Replicas
        label="Replicas"
        pools={pools}
        head={(pool) => (
          <>
            <Link className="primary-cell" to="/operations/fleet/pools/$pool" params={{ pool: pool.name }}>
              {pool.name}
            </Link>
            {models.data && <span>{modelsTold(pool.name, models.data)}</span>}
            {serving.data && (
              <span>{servedTold(serving.data.data.find((each) => each.pool === pool.name))}</span>
            )}
            <span>{count(pool.queued)} waiting for a slot</span>
          </>
        )}
      />
    </>
  );
}

/** The version in force, and which gateways serve by it. */
function Standing({ routerVersion }: { routerVersion: number | undefined }) {
  const standing = useQuery({ queryKey: STANDING, queryFn: () => read(api.GET("/admin/v1/fleet")) });
  if (standing.error) return <ErrorNotice error={standing.error} retry={() => void standing.refetch()} />;
  if (!standing.data) return null;
  const { version, gateways } = standing.data;
  return (
    <Card
      title={`Version ${version}`}
      about="Gateways adopt a version within seconds, or report why they cannot."
      actions={
        <Link
          className="button"
          to="/operations/fleet/versions/$version"
          params={{ version: String(version) }}
        >
          What changed
        </Link>
      }
    >
      {routerVersion !== undefined && routerVersion !== version && (
        <Notice tone="warn" title={`The router uses version ${routerVersion}`}>
          The first gateway that adopts the newest version sends it to the router.
        </Notice>
      )}
      <Table
        label="Gateways"
        columns={[
          { id: "gateway", heading: "Gateway", value: (row) => row.instance },
          {
            id: "version",
            heading: "Version in use",
            value: (row) => row.version,
            cell: (row) => (
              <span className="row">
                version {row.version}
                {row.silent ? (
                  <Badge>silent</Badge>
                ) : (
                  row.version !== version && <Badge tone={row.refusal ? "bad" : "warn"}>behind</Badge>
                )}
              </span>
            ),
          },
          {
            id: "refusal",
            heading: "Cannot adopt",
            value: (row) => row.refusal,
            cell: (row) =>
              row.refusal ? (
                <span className="wrap">
                  version {row.refused_version}: {row.refusal}
                </span>
              ) : (
                "–"
              ),
          },
          {
            id: "seen_at",
            heading: "Reported",
            value: (row) => row.seen_at,
            cell: (row) => <Time at={row.seen_at} />,
          },
        ]}
        list={gateways}
        rowKey={(row) => row.instance}
        empty={<Empty title="No gateway has reported in the last day" />}
      />
    </Card>
  );
}
