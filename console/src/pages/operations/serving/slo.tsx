import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { api, read } from "../../../api/client";
import { useLive } from "../../../api/live";
import { Empty, ErrorNotice, Loading } from "../../../components/notice";
import { Card } from "../../../components/page";
import { Table } from "../../../components/table";
import { money } from "../../../format/money";
import { short } from "../../../format/number";
import { ObjectivesPage, type ObjectivesSearch } from "../../tenants/objectives-of";
import { lengthMs, type SeriesPeriod } from "./choices";

const route = getRouteApi("/signed/operations/slo");

export function Slo() {
  useLive(["slo"], [["slo"]]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<ObjectivesSearch>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  return (
    <ObjectivesPage
      whose="of all organizations"
      search={search}
      onChange={set}
      diagnosis="/operations/diagnosis"
    >
      <PoolCosts period={search.period ?? "24h"} />
    </ObjectivesPage>
  );
}

function PoolCosts({ period }: { period: SeriesPeriod }) {
  const query = useQuery({
    queryKey: ["slo", "pools", period],
    queryFn: () => {
      const end = new Date();
      const start = new Date(end.getTime() - lengthMs(period));
      return read(
        api.GET("/admin/v1/slo/pools", {
          params: { query: { start: start.toISOString(), end: end.toISOString() } },
        }),
      );
    },
  });
  if (query.error) return <ErrorNotice error={query.error} retry={() => void query.refetch()} />;
  if (!query.data) return <Loading lines={4} />;
  const { currency } = query.data;
  return (
    <Card
      title="Cost of good tokens"
      about="Replica hours times the pool’s price, divided by the output tokens of requests that met their objectives."
    >
      <Table
        label="Cost of good tokens by pool"
        columns={[
          { id: "pool", heading: "Pool", value: (row) => row.pool },
          {
            id: "replica_hours",
            heading: "Replica-hours",
            right: true,
            value: (row) => row.replica_hours,
            cell: (row) => row.replica_hours.toFixed(2),
          },
          {
            id: "amount_micro",
            heading: "Cost",
            right: true,
            value: (row) => row.amount_micro,
            cell: (row) => (row.amount_micro === null ? "no price" : money(row.amount_micro, currency)),
          },
          {
            id: "good_tokens",
            heading: "Good tokens",
            right: true,
            value: (row) => row.good_tokens,
            cell: (row) => short(row.good_tokens),
          },
          {
            id: "per_million",
            heading: "Per million",
            right: true,
            value: (row) => row.per_million_good_tokens_micro,
            cell: (row) => money(row.per_million_good_tokens_micro, currency),
          },
          { id: "currency", heading: "Currency", value: () => currency, csvOnly: true },
        ]}
        list={query.data.data}
        rowKey={(row) => row.pool}
        csvName="pool-costs"
        empty={
          <Empty title="No pool in this period">
            Give pools a <code>price_per_replica_hour</code> to see what good tokens cost.
          </Empty>
        }
      />
    </Card>
  );
}
