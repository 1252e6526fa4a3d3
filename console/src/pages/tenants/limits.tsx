import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../api/client";
import { SelectField } from "../../components/field";
import { Filters } from "../../components/filters";
import { Empty, ErrorNotice } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { TIERS } from "../../shell/choices";
import { useMyself } from "../../shell/session";
import { useOrganization } from "../../shell/shell";
import { type Effective, effectiveLimits } from "./effective";
import { labelOf } from "./limit-names";
import { LimitsOf, shownLimit, useRules } from "./limits-of";

const route = getRouteApi("/signed/org/$organizationId/limits");

/** Rules of the organization, of a project and of a key, and what holds of all of them. */
export function LimitsPage() {
  const { organizationId } = route.useParams();
  const { project, key } = route.useSearch();
  const navigate = route.useNavigate();
  const { can } = useMyself();
  const projects = useQuery({
    queryKey: ["projects", organizationId, "choice"],
    queryFn: () =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/projects", {
          params: { path: { organization_id: organizationId }, query: { limit: 100 } },
        }),
      ),
  });
  const keys = useQuery({
    queryKey: ["keys", project, "choice"],
    queryFn: () =>
      read(
        api.GET("/admin/v1/projects/{project_id}/keys", {
          params: { path: { project_id: project ?? "" }, query: { limit: 100, state: "active" } },
        }),
      ),
    enabled: project !== undefined && can("keys.read", organizationId),
  });
  return (
    <Page
      title="Limits and budgets"
      about="A request has to pass every rule that concerns it: of its key, its project and its organization, for its tier and for all tiers."
    >
      <Filters>
        <SelectField
          label="Project"
          value={project ?? ""}
          onChange={(event) =>
            void navigate({ search: { project: event.currentTarget.value || undefined }, replace: true })
          }
        >
          <option value="">The organization alone</option>
          {projects.data?.data.map((each) => (
            <option key={each.id} value={each.id}>
              {each.name}
            </option>
          ))}
        </SelectField>
        {project && (
          <SelectField
            label="Key"
            value={key ?? ""}
            onChange={(event) =>
              void navigate({
                search: { project, key: event.currentTarget.value || undefined },
                replace: true,
              })
            }
          >
            <option value="">No key</option>
            {keys.data?.data.map((each) => (
              <option key={each.id} value={each.id}>
                {each.name}
              </option>
            ))}
          </SelectField>
        )}
      </Filters>
      <div className="stack">
        <Holds organizationId={organizationId} project={project} apiKey={key} />
        <LimitsOf level="organization" subjectId={organizationId} organizationId={organizationId} />
        {project && (
          <LimitsOf key={project} level="project" subjectId={project} organizationId={organizationId} />
        )}
        {key && <LimitsOf key={key} level="key" subjectId={key} organizationId={organizationId} />}
      </div>
    </Page>
  );
}

type Row = Effective & { tier: Schemas["Tier"] };

function Holds({
  organizationId,
  project,
  apiKey,
}: {
  organizationId: string;
  project: string | undefined;
  apiKey: string | undefined;
}) {
  const asked = [
    useRules("organization", organizationId),
    useRules("project", project),
    useRules("key", apiKey),
  ];
  const organization = useOrganization(organizationId);
  const error = asked.find((each) => each.error)?.error;
  if (error) return <ErrorNotice error={error} />;
  const rules = asked.flatMap((each) => each.data?.data ?? []);
  const rows = TIERS.flatMap((tier): Row[] =>
    effectiveLimits(rules, tier).map((each) => ({ ...each, tier })),
  );
  const columns: Column<Row>[] = [
    { id: "tier", heading: "Requests of", value: (row) => row.tier },
    { id: "counter", heading: "Counter", value: (row) => labelOf(row.counter) },
    {
      id: "limit",
      heading: "Effective limit",
      right: true,
      value: (row) => row.limit,
      cell: (row) => shownLimit(row.counter, row.limit),
    },
    {
      id: "from",
      heading: "Comes from",
      value: (row) => `${row.from.level}, ${row.from.tier ?? "all tiers"}`,
      cell: (row) => (
        <span>
          {row.from.level === "organization"
            ? `the organization ${organization.data?.name ?? ""}`
            : `the ${row.from.level}`}
          <span className="quiet"> · {row.from.tier ?? "all tiers"}</span>
        </span>
      ),
    },
  ];
  return (
    <Card
      title="What holds"
      about={
        apiKey
          ? "For requests of this key."
          : project
            ? "For requests of this project."
            : "For every request of the organization."
      }
    >
      <Table
        label="Effective limits"
        columns={columns}
        list={rows}
        rowKey={(row) => `${row.tier} ${row.counter}`}
        csvName="effective-limits"
        empty={
          <Empty title="Nothing is limited">
            Set a limit below. What a request was refused for is told{" "}
            <Link to="/org/$organizationId/requests" params={{ organizationId }}>
              by its id
            </Link>
            .
          </Empty>
        }
      />
    </Card>
  );
}
