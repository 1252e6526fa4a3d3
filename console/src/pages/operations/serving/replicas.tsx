/** Replicas as the router sees them, by pool, and what can be done with each. */
import { type ReactNode, useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useAction } from "../../../components/action";
import { Badge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Confirm } from "../../../components/dialog";
import { Empty } from "../../../components/notice";
import { type Column, Table } from "../../../components/table";
import { count, short } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { type LiveReplica, stateOf } from "./replica-state";

export type LivePool = Schemas["LivePool"];

type Row = LiveReplica & { pool: LivePool };

/** head: the line above each pool's replicas; none for a page of one pool. */
export function Replicas({
  label,
  pools,
  head,
}: {
  label: string;
  pools: LivePool[];
  head?: (pool: LivePool) => ReactNode;
}) {
  const { canOperate } = useMyself();
  const [weighing, setWeighing] = useState<Row | null>(null);
  const columns: Column<Row>[] = [
    { id: "pool", heading: "Pool", value: (row) => row.pool.name, csvOnly: true },
    {
      id: "replica",
      heading: "Replica",
      value: (row) => row.id,
      cell: (row) => (
        <>
          <span className="primary-cell">{row.id}</span>
          <br />
          <small className="quiet">{[row.url, row.driver, row.hardware].filter(Boolean).join(" · ")}</small>
        </>
      ),
    },
    {
      id: "state",
      heading: "State",
      lead: true,
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
        <>
          {count(row.leases)} <small className="quiet">of {count(row.max_concurrency)}</small>
          <br />
          <small className="quiet wrap">{row.limited_by}</small>
        </>
      ),
    },
    {
      id: "engine",
      heading: "Running + waiting",
      right: true,
      value: (row) => row.running + row.waiting,
      cell: (row) => `${count(row.running)} + ${count(row.waiting)}`,
    },
    {
      id: "prefill_tokens",
      heading: "Prefill tokens",
      right: true,
      value: (row) => row.prefill_tokens,
      cell: (row) => (
        <>
          {short(row.prefill_tokens)}
          {row.prefill_tokens_per_s > 0 && (
            <>
              <br />
              <small className="quiet">{short(row.prefill_tokens_per_s)} per second</small>
            </>
          )}
        </>
      ),
    },
    {
      id: "headroom_tokens",
      heading: "KV headroom",
      right: true,
      value: (row) => row.headroom_tokens,
      cell: (row) => (row.headroom_tokens === null ? "–" : short(row.headroom_tokens)),
    },
    {
      id: "actions",
      heading: "Actions",
      actions: true,
      value: () => null,
      cell: (row) =>
        canOperate("fleet.write") && (
          <Button size="small" onClick={() => setWeighing(row)}>
            {row.weight === 0 ? "Undrain" : "Drain"}
          </Button>
        ),
    },
  ];
  return (
    <>
      <Table
        label={label}
        columns={columns}
        list={pools.flatMap((pool) => pool.replicas.map((replica): Row => ({ ...replica, pool })))}
        rowKey={(row) => `${row.pool.name} ${row.id}`}
        csvName={label.toLowerCase()}
        group={head && { key: (row) => row.pool.name, head: (row) => head(row.pool) }}
        empty={<Empty title="No replica">Requests for its models are refused until it has a replica.</Empty>}
      />
      {weighing && <Weigh pool={weighing.pool} replica={weighing} onClose={() => setWeighing(null)} />}
    </>
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
      done: drained ? `${replica.id} gets requests again.` : `${replica.id} gets no new requests.`,
      then: onClose,
    },
  );
  return (
    <Confirm
      title={drained ? `Undrain ${replica.id}?` : `Drain ${replica.id}?`}
      action={drained ? "Undrain" : "Drain"}
      {...(last ? { typed: replica.id } : {})}
      busy={weigh.isPending}
      error={weigh.error}
      onConfirm={() => weigh.mutate(undefined)}
      onClose={onClose}
    >
      {drained ? (
        <p>Its weight becomes 1, and the router sends it requests as soon as it is healthy.</p>
      ) : (
        <>
          <p>
            It gets no new requests; {count(replica.leases)} that run there end normally. Its weight becomes
            0, in a new version of the fleet, until you undrain it.
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
