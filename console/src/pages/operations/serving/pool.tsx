import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useLive } from "../../../api/live";
import { Button } from "../../../components/button";
import { ActionsMenu, type MenuAction } from "../../../components/menu";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Card, Facts, Page, Stats } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { exactMoney } from "../../../format/money";
import { count } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { AddReplica, ChangeUrl } from "./add-model";
import { useLiveFleet } from "./live-fleet";
import { type Removable, Remove } from "./remove";
import { Replicas } from "./replicas";

type Model = Schemas["Model"];
type Pool = Schemas["Pool"];
type Replica = Schemas["Replica"];
const route = getRouteApi("/signed/operations/fleet/pools/$pool");

/** One pool: its replicas as they are, the models it serves, and how it is set up. */
export function PoolPage() {
  const { pool: name } = route.useParams();
  useLive(["fleet"], [["fleet"]]);
  const pool = useQuery({
    queryKey: ["fleet", "pool", name],
    queryFn: () => read(api.GET("/admin/v1/pools/{pool_name}", { params: { path: { pool_name: name } } })),
  });
  const { canOperate, currency } = useMyself();
  const canWrite = canOperate("fleet.write");
  const [adding, setAdding] = useState(false);
  const [moving, setMoving] = useState<Replica | null>(null);
  const [removing, setRemoving] = useState<Removable | null>(null);
  const live = useLiveFleet();
  const models = useQuery({
    queryKey: ["fleet", "models"],
    queryFn: () => read(api.GET("/admin/v1/models")),
  });
  const crumbs = [
    <Link key="fleet" to="/operations/fleet">
      Fleet
    </Link>,
  ];
  if (pool.error || !pool.data)
    return (
      <Page title={name} crumbs={crumbs}>
        {pool.error ? <ErrorNotice error={pool.error} retry={() => void pool.refetch()} /> : <Loading />}
      </Page>
    );
  const seen = live.data?.pools.find((each) => each.name === name);
  const served = models.data?.data.filter((each) => each.pool === name || each.canary?.pool === name);
  const usable = seen?.replicas.filter((each) => each.usable).length;
  return (
    <Page
      title={name}
      about="A pool is a set of replicas that serve the same models."
      crumbs={crumbs}
      actions={
        canWrite &&
        served?.length === 0 && <Button onClick={() => setRemoving({ pool: name })}>Remove the pool…</Button>
      }
    >
      {removing && <Remove what={removing} onClose={() => setRemoving(null)} />}
      {moving && <ChangeUrl pool={pool.data} replica={moving} onClose={() => setMoving(null)} />}
      <div className="stack">
        {seen && (
          <Stats
            figures={[
              { name: "Usable replicas", value: count(usable), note: `of ${count(seen.replicas.length)}` },
              { name: "Running", value: count(seen.replicas.reduce((all, each) => all + each.leases, 0)) },
              { name: "Waiting for a slot", value: count(seen.queued) },
              { name: "Models", value: count(served?.length) },
              { name: "Price per replica-hour", value: priceOf(pool.data, currency) },
            ]}
          />
        )}
        <Card
          title="Replicas"
          about="The router’s current view."
          actions={
            canWrite && (
              <Button size="small" icon="plus" onClick={() => setAdding(true)}>
                Add a replica
              </Button>
            )
          }
        >
          {adding && <AddReplica pool={pool.data} onClose={() => setAdding(false)} />}
          {live.error ? (
            <ErrorNotice error={live.error} retry={() => void live.refetch()} />
          ) : !live.data ? (
            <Loading lines={4} />
          ) : seen ? (
            <Replicas label={`Replicas of ${name}`} pools={[seen]} />
          ) : (
            <Notice tone="warn" title="The router does not know this pool yet">
              The first gateway that serves the newest version reports it to the router.
            </Notice>
          )}
        </Card>
        <Card title="Models" about="Models that this pool serves, or that are in a trial on it.">
          {models.error ? (
            <ErrorNotice error={models.error} retry={() => void models.refetch()} />
          ) : !served ? (
            <Loading lines={3} />
          ) : (
            <Table
              label={`Models of ${name}`}
              columns={[
                ...MODELS,
                ...menu<Model>(canWrite, (row) => [
                  { label: "Remove…", tone: "bad", onSelect: () => setRemoving({ model: row.name }) },
                ]),
              ]}
              list={served}
              rowKey={(row) => row.name}
              csvName={`models-${name}`}
              empty={
                <Empty title="No model names this pool">
                  Its engines are idle. Add a model that it serves, start a release to it, or remove it.
                </Empty>
              }
            />
          )}
        </Card>
        <Card title="Set up" about="In the current version of the fleet.">
          <div className="stack">
            <Facts facts={factsOf(pool.data)} />
            <Table
              label={`Replicas of ${name}, as set up`}
              columns={[
                ...REPLICAS,
                ...menu<Replica>(canWrite, (row) => [
                  { label: "Change the URL…", onSelect: () => setMoving(row) },
                  {
                    label: "Remove…",
                    tone: "bad",
                    onSelect: () => setRemoving({ pool: name, replica: row.id }),
                  },
                ]),
              ]}
              list={pool.data.replicas ?? []}
              rowKey={(row) => row.id}
              empty={
                <Empty title="No replica">Requests for its models are refused until it has a replica.</Empty>
              }
            />
          </div>
        </Card>
      </div>
    </Page>
  );
}

/** The last column: what may be done with a row. */
const menu = <Row extends Model | Replica>(
  may: boolean,
  actions: (row: Row) => MenuAction[],
): Column<Row>[] =>
  may
    ? [
        {
          id: "actions",
          heading: "Actions",
          actions: true,
          value: () => null,
          cell: (row) => <ActionsMenu label="Actions" actions={actions(row)} />,
        },
      ]
    : [];

const priceOf = (pool: Pool, currency: string) =>
  pool.price_per_replica_hour
    ? exactMoney(Math.round(pool.price_per_replica_hour * 1_000_000), currency)
    : "not set";

function factsOf(pool: Pool): [string, string][] {
  const facts: [string, string | false | undefined][] = [
    ["Driver", pool.driver],
    ["Role", pool.role && pool.role !== "unified" && pool.role],
    ["Prefill pool", pool.prefill_pool],
    ["Split pool", pool.split_pool],
    ["Hardware", pool.hardware],
    ["Tensor parallel", pool.tensor_parallel ? count(pool.tensor_parallel) : ""],
    [
      "Concurrent requests per replica",
      pool.max_concurrency ? `${count(pool.max_concurrency)} at most` : "measured",
    ],
    ["Concurrent adapters per replica", pool.max_adapters ? `${count(pool.max_adapters)} at most` : "none"],
    ["Engines schedule by priority", pool.request_priorities ? "yes" : "no"],
    ["Separate cache for each organization", pool.cache_salt ? "yes" : "no"],
  ];
  return facts.flatMap(([name, value]): [string, string][] => (value ? [[name, value]] : []));
}

const MODELS: Column<Model>[] = [
  {
    id: "name",
    heading: "Model",
    value: (row) => row.name,
    cell: (row) => <span className="primary-cell">{row.name}</span>,
  },
  { id: "tier", heading: "Tier", value: (row) => row.tier },
  {
    id: "context_tokens",
    heading: "Context",
    right: true,
    value: (row) => row.context_tokens,
    cell: (row) => count(row.context_tokens),
  },
  { id: "engine_model", heading: "Engines’ name", value: (row) => row.engine_model ?? row.name },
  { id: "aliases", heading: "Aliases", value: (row) => row.aliases?.join(", ") || "none" },
  { id: "canary", heading: "In a trial on", value: (row) => row.canary?.pool },
];

const REPLICAS: Column<Replica>[] = [
  {
    id: "id",
    heading: "Replica",
    value: (row) => row.id,
    cell: (row) => <span className="primary-cell">{row.id}</span>,
  },
  { id: "url", heading: "Address", value: (row) => row.url, cell: (row) => <code>{row.url}</code> },
  { id: "weight", heading: "Weight", right: true, value: (row) => row.weight ?? 1 },
  { id: "speed", heading: "Speed", right: true, value: (row) => row.speed ?? 1 },
  {
    id: "context_tokens",
    heading: "Context",
    right: true,
    value: (row) => row.context_tokens || null,
    cell: (row) => (row.context_tokens ? count(row.context_tokens) : "the model’s"),
  },
  { id: "hardware", heading: "Hardware", value: (row) => row.hardware || "the pool’s" },
  { id: "kv_events", heading: "Cache events from", value: (row) => row.kv_events || "none" },
];
