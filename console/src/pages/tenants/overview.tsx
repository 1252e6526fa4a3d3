import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, read } from "../../api/client";
import { readAll } from "../../api/list";
import { useLive } from "../../api/live";
import { Chart } from "../../components/chart";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Page, Stats } from "../../components/page";
import { Pending } from "../../components/pending";
import { Table } from "../../components/table";
import { count, percent, short } from "../../format/number";
import { Cents, useMoney } from "../../shell/money";
import { useMyself } from "../../shell/session";
import { useOrganization } from "../../shell/shell";
import { useProjects } from "./names";
import { periodOf } from "./periods";
import { requestColumn, requestColumns } from "./request-columns";
import { seriesOf, totalsOf } from "./usage-series";

const route = getRouteApi("/signed/org/$organizationId");

export function Overview() {
  const { organizationId } = route.useParams();
  const { can } = useMyself();
  const organization = useOrganization(organizationId);
  useLive(
    ["usage", "requests"],
    [
      ["usage", organizationId],
      ["requests", organizationId],
    ],
  );
  if (organization.error) return <Pending title="Overview" query={organization} />;
  return (
    <Page title={organization.data?.name ?? "Overview"} about="The last 24 hours.">
      <div className="stack">
        {can("usage.read", organizationId) && <Traffic organizationId={organizationId} />}
        {can("requests.read", organizationId) && <Newest organizationId={organizationId} />}
      </div>
    </Page>
  );
}

function Traffic({ organizationId }: { organizationId: string }) {
  const hour = Math.floor(Date.now() / 3_600_000);
  const period = useMemo(() => periodOf("24h", new Date(hour * 3_600_000)), [hour]);
  const usage = useQuery({
    queryKey: ["usage", organizationId, "overview", period.start.toISOString()],
    queryFn: () =>
      readAll((cursor) =>
        read(
          api.GET("/admin/v1/organizations/{organization_id}/usage", {
            params: {
              path: { organization_id: organizationId },
              query: {
                limit: 100,
                cursor,
                start: period.start.toISOString(),
                end: period.end.toISOString(),
                bucket: "hour",
                group_by: ["model"],
              },
            },
          }),
        ),
      ),
  });
  const chart = useMemo(
    () => seriesOf(usage.data ?? [], usage.data ?? [], "model", "requests", period),
    [usage.data, period],
  );
  if (usage.error) return <ErrorNotice error={usage.error} retry={() => void usage.refetch()} />;
  if (!usage.data) return <Loading lines={8} />;
  const sum = totalsOf(usage.data, undefined, "requests")[0];
  if (!sum) return <FirstSteps organizationId={organizationId} />;
  return (
    <>
      <Stats
        figures={[
          { name: "Billed requests", value: short(sum.requests), note: "refused ones cost nothing" },
          { name: "Input tokens", value: short(sum.prompt_tokens) },
          {
            name: "From the cache",
            value: sum.prompt_tokens > 0 ? percent(sum.cached_tokens / sum.prompt_tokens) : "–",
          },
          { name: "Output tokens", value: short(sum.completion_tokens) },
          { name: "Cost", value: <Cents micro={sum.amount_micro} /> },
        ]}
      />
      <Card
        title="Requests by hour"
        about="Billed requests by model, in UTC."
        actions={
          <Link
            className="button"
            to="/org/$organizationId/usage"
            params={{ organizationId }}
            search={{ period: "24h" }}
          >
            Explore
          </Link>
        }
      >
        <Chart
          label="Requests by hour"
          kind="bars"
          times={chart.times}
          series={chart.series}
          format={count}
          whole
        />
      </Card>
    </>
  );
}

function Newest({ organizationId }: { organizationId: string }) {
  const money = useMoney();
  const requests = useQuery({
    queryKey: ["requests", organizationId, "newest"],
    queryFn: () =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/requests", {
          params: { path: { organization_id: organizationId }, query: { limit: 8 } },
        }),
      ),
  });
  if (!requests.data || requests.data.data.length === 0) return null;
  return (
    <section className="stack-tight">
      <div className="row-apart">
        <h2>Newest requests</h2>
        <Link to="/org/$organizationId/requests" params={{ organizationId }}>
          All requests
        </Link>
      </div>
      <Table
        label="Newest requests"
        list={requests.data.data}
        rowKey={(row) => row.request_id}
        empty={null}
        columns={[requestColumn((id) => `/org/${organizationId}/requests/${id}`), ...requestColumns(money)]}
      />
    </section>
  );
}

function FirstSteps({ organizationId }: { organizationId: string }) {
  const { can } = useMyself();
  const projects = useProjects(organizationId);
  if (projects.error) return <ErrorNotice error={projects.error} retry={() => void projects.refetch()} />;
  if (!projects.data) return <Loading lines={4} />;
  const none = projects.data.length === 0;
  const makes = none && can("projects.write", organizationId);
  return (
    <Card>
      <Empty
        title={none ? "Start with a project" : "Nothing was billed in the last 24 hours"}
        action={
          <Link
            className="button"
            data-kind="primary"
            to="/org/$organizationId/projects"
            params={{ organizationId }}
            search={makes ? { make: true } : {}}
          >
            {makes ? "Make a project" : "Open the projects"}
          </Link>
        }
      >
        {makes
          ? "A project holds keys. A key gives access to the API, which works with any OpenAI client."
          : none
            ? "There is no project yet. A project holds keys, which give access to the API. An administrator of this organization makes projects."
            : "Send a request with a key of a project, or try a model in the playground. It appears here a few seconds later."}
      </Empty>
    </Card>
  );
}
