import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useLive } from "../../../api/live";
import { useAction } from "../../../components/action";
import { Badge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Confirm } from "../../../components/dialog";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Card, Page, Stats } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count, short } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { type LiveReplica, stateOf } from "./replica-state";

type LivePool = Schemas["LivePool"];
const LIVE = ["fleet", "live"];
const STANDING = ["fleet", "standing"];

export function Fleet() {
  useLive(["fleet"], [LIVE, STANDING]);
  const live = useQuery({ queryKey: LIVE, queryFn: () => read(api.GET("/admin/v1/fleet/live")) });
  const pools = live.data?.pools ?? [];
  const replicas = pools.flatMap((pool) => pool.replicas);
  const sum = (figure: (replica: LiveReplica) => number) =>
    replicas.reduce((all, replica) => all + figure(replica), 0);
  return (
    <Page
      title="Fleet"
      about="Every pool and replica as the router sees it now."
      actions={
        <Link className="button" to="/operations/fleet/versions">
          Versions
        </Link>
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
                  name: "Waiting for a place",
                  value: count(pools.reduce((all, pool) => all + pool.queued, 0)),
                },
                { name: "Prompt tokens to compute", value: short(sum((each) => each.prefill_tokens)) },
                { name: "Gateways", value: count(live.data.gateways) },
              ]}
            />
            {pools.length === 0 && (
              <Empty title="The fleet has no pool">
                Put one into the settings (`[[pools]]`), or add it by `slipstream pools put`.
              </Empty>
            )}
            {pools.map((pool) => (
              <PoolCard key={pool.name} pool={pool} />
            ))}
          </>
        )}
        <Standing routerVersion={live.data?.version} />
      </div>
    </Page>
  );
}

function PoolCard({ pool }: { pool: LivePool }) {
  const { canOperate } = useMyself();
  const [weighing, setWeighing] = useState<LiveReplica | null>(null);
  const columns: Column<LiveReplica>[] = [
    {
      id: "replica",
      heading: "Replica",
      value: (row) => row.id,
      cell: (row) => (
        <>
          <span className="primary-cell">{row.id}</span>
          <br />
          <small className="quiet">{row.url}</small>
        </>
      ),
    },
    {
      id: "state",
      heading: "State",
      value: (row) => stateOf(row).word,
      cell: (row) => {
        const { word, tone, why } = stateOf(row);
        return (
          <>
            <Badge tone={tone}>{word}</Badge>
            {why && (
              <>
                <br />
                <small className="quiet wrap">{why}</small>
              </>
            )}
          </>
        );
      },
    },
    {
      id: "leases",
      heading: "Requests",
      right: true,
      value: (row) => row.leases,
      cell: (row) => (
        <span title={`At most ${row.max_concurrency}: ${row.limited_by}`}>
          {count(row.leases)} <small className="quiet">of {count(row.max_concurrency)}</small>
        </span>
      ),
    },
    { id: "limited_by", heading: "At most, because", value: (row) => row.limited_by },
    {
      id: "engine",
      heading: "Engine runs + waits",
      right: true,
      value: (row) => row.running + row.waiting,
      cell: (row) => `${count(row.running)} + ${count(row.waiting)}`,
    },
    {
      id: "prefill_tokens",
      heading: "Prefill",
      right: true,
      value: (row) => row.prefill_tokens,
      cell: (row) => short(row.prefill_tokens),
    },
    {
      id: "headroom_tokens",
      heading: "KV headroom",
      right: true,
      value: (row) => row.headroom_tokens,
      cell: (row) => (row.headroom_tokens === null ? "–" : short(row.headroom_tokens)),
    },
    {
      id: "prefill_tokens_per_s",
      heading: "Prefill tokens/s",
      right: true,
      value: (row) => row.prefill_tokens_per_s,
      cell: (row) => (row.prefill_tokens_per_s ? short(row.prefill_tokens_per_s) : "–"),
    },
    { id: "hardware", heading: "Hardware", value: (row) => row.hardware },
    {
      id: "actions",
      heading: "Actions",
      actions: true,
      value: () => null,
      cell: (row) =>
        canOperate("fleet.write") && (
          <Button size="small" onClick={() => setWeighing(row)}>
            {row.weight === 0 ? "Give it requests" : "Drain"}
          </Button>
        ),
    },
  ];
  return (
    <Card
      title={pool.name}
      about={[`${count(pool.queued)} waiting for a place`, pool.speculation && `drafts ${pool.speculation}`]
        .filter(Boolean)
        .join(" · ")}
    >
      <Table
        label={`Replicas of ${pool.name}`}
        columns={columns}
        list={pool.replicas}
        rowKey={(row) => row.id}
        csvName={`replicas-${pool.name}`}
        empty={
          <Empty title="No replica">Requests for this pool’s models are refused until it has one.</Empty>
        }
      />
      {weighing && <Weigh pool={pool} replica={weighing} onClose={() => setWeighing(null)} />}
    </Card>
  );
}

/** Drain a replica, or give it requests again. */
function Weigh({ pool, replica, onClose }: { pool: LivePool; replica: LiveReplica; onClose: () => void }) {
  const drained = replica.weight === 0;
  const others = pool.replicas.filter((each) => each.id !== replica.id && each.usable).length;
  // the API refuses to leave a model without an engine, unless it is told that this is meant
  const last = !drained && others === 0;
  const weigh = useAction(
    () =>
      read(
        api.PATCH("/admin/v1/pools/{pool_name}/replicas/{replica_id}", {
          params: { path: { pool_name: pool.name, replica_id: replica.id }, query: { force: last } },
          body: { weight: drained ? 1 : 0 },
        }),
      ),
    {
      quiet: true,
      stale: ["fleet"],
      done: drained ? `${replica.id} is given requests again.` : `${replica.id} is given no new requests.`,
      then: onClose,
    },
  );
  return (
    <Confirm
      title={drained ? `Give ${replica.id} requests again?` : `Drain ${replica.id}?`}
      action={drained ? "Give it requests" : "Drain"}
      {...(last ? { typed: replica.id } : {})}
      busy={weigh.isPending}
      error={weigh.error}
      onConfirm={() => weigh.mutate(undefined)}
      onClose={onClose}
    >
      {drained ? (
        <p>Its weight becomes 1, and the router gives it requests as soon as it is healthy.</p>
      ) : (
        <>
          <p>
            It is given no new requests; {count(replica.leases)} that run there end by themselves. Its weight
            becomes 0, in a new version of the fleet, until it is given requests again.
          </p>
          <p>
            {last
              ? "No other replica of this pool can serve: its models’ requests will be refused."
              : `${count(others)} other replica${others === 1 ? "" : "s"} of ${pool.name} can serve.`}
          </p>
        </>
      )}
    </Confirm>
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
      about="Gateways take a version up within seconds, or say why they do not."
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
        <Notice tone="warn" title={`The router places by version ${routerVersion}`}>
          It is told the newest by the first gateway that has taken it up.
        </Notice>
      )}
      <Table
        label="Gateways"
        columns={[
          { id: "gateway", heading: "Gateway", value: (row) => row.instance },
          {
            id: "version",
            heading: "Serves by",
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
            heading: "Cannot take up",
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
            heading: "Said so",
            value: (row) => row.seen_at,
            cell: (row) => <Time at={row.seen_at} />,
          },
        ]}
        list={gateways}
        rowKey={(row) => row.instance}
        empty={<Empty title="No gateway has reported within a day" />}
      />
    </Card>
  );
}
