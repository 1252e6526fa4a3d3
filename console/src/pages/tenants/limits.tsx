import { getRouteApi } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import { ErrorNotice, Loading } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { TIERS } from "../../shell/choices";
import { useMoney } from "../../shell/money";
import { useOrganization } from "../../shell/shell";
import { type Effective, effectiveLimits } from "./effective";
import { labelOf } from "./limit-names";
import { LimitsOf, shownLimit, useRules } from "./limits-of";
import { LimitsWithin } from "./limits-within";
import { SubjectChoice } from "./subject-choice";

const route = getRouteApi("/signed/org/$organizationId/limits");

/** Rules of the organization, of a project and of a key, and what holds of all of them. */
export function LimitsPage() {
  const { organizationId } = route.useParams();
  const { project, key } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <Page
      title="Limits and budgets"
      about="A request must pass every rule that applies to it: of its key, its project and its organization, for its tier and for all tiers."
    >
      <SubjectChoice
        organizationId={organizationId}
        project={project}
        apiKey={key}
        onChange={(search) => void navigate({ search, replace: true })}
      />
      <div className="stack">
        <Holds organizationId={organizationId} project={project} apiKey={key} />
        <LimitsOf level="organization" subjectId={organizationId} organizationId={organizationId} />
        {project && (
          <LimitsOf key={project} level="project" subjectId={project} organizationId={organizationId} />
        )}
        {key && <LimitsOf key={key} level="key" subjectId={key} organizationId={organizationId} />}
        {!key && <LimitsWithin organizationId={organizationId} project={project} />}
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
  const money = useMoney();
  const error = asked.find((each) => each.error)?.error;
  if (error) return <ErrorNotice error={error} />;
  if (asked.some((each) => each.isLoading)) return <Loading lines={3} />;
  const rules = asked.flatMap((each) => each.data?.data ?? []);
  const rows = TIERS.flatMap((tier): Row[] =>
    effectiveLimits(rules, tier).map((each) => ({ ...each, tier })),
  );
  // what is set, and that nothing is, the cards below say
  if (rows.length === 0) return null;
  const columns: Column<Row>[] = [
    { id: "tier", heading: "Requests of", value: (row) => row.tier },
    { id: "counter", heading: "Counter", value: (row) => labelOf(row.counter) },
    {
      id: "limit",
      heading: "Effective limit",
      right: true,
      value: (row) => shownLimit(row.counter, row.limit, money),
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
      title="Effective limits"
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
        empty={null}
      />
    </Card>
  );
}
