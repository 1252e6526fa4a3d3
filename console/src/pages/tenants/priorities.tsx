import { getRouteApi } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import { StateBadge } from "../../components/badge";
import { ErrorNotice, Loading } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { count } from "../../format/number";
import { TIERS } from "../../shell/choices";
import { PrioritiesOf, usePriorities } from "./priorities-of";
import { type EffectivePriority, effectivePriority } from "./priority-rules";
import { SubjectChoice } from "./subject-choice";

const route = getRouteApi("/signed/org/$organizationId/priorities");

/** Classes and shares of the organization, of a project and of a key, and what holds of all of them. */
export function Priorities() {
  const { organizationId } = route.useParams();
  const { project, key } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <Page
      title="Priorities"
      about="The order of requests while engines are busy. The class decides first, then the share. Neither matters while there is room for all requests."
    >
      <SubjectChoice
        organizationId={organizationId}
        project={project}
        apiKey={key}
        onChange={(search) => void navigate({ search, replace: true })}
      />
      <div className="stack">
        <Holds organizationId={organizationId} project={project} apiKey={key} />
        <PrioritiesOf level="organization" subjectId={organizationId} organizationId={organizationId} />
        {project && (
          <PrioritiesOf key={project} level="project" subjectId={project} organizationId={organizationId} />
        )}
        {key && <PrioritiesOf key={key} level="key" subjectId={key} organizationId={organizationId} />}
      </div>
    </Page>
  );
}

type Row = EffectivePriority & { tier: Schemas["Tier"] };

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
    usePriorities("organization", organizationId),
    usePriorities("project", project),
    usePriorities("key", apiKey),
  ];
  const failed = asked.find((each) => each.error);
  if (failed) return <ErrorNotice error={failed.error} retry={() => void failed.refetch()} />;
  if (asked.some((each) => each.isLoading)) return <Loading lines={3} />;
  const rules = asked.flatMap((each) => each.data?.data ?? []);
  const rows = TIERS.map((tier): Row => ({ ...effectivePriority(rules, tier), tier }));
  const columns: Column<Row>[] = [
    { id: "tier", heading: "Requests of", value: (row) => row.tier },
    {
      id: "class",
      heading: "Class",
      value: (row) => row.serviceClass,
      cell: (row) => <StateBadge state={row.serviceClass} />,
    },
    {
      id: "from",
      heading: "Comes from",
      value: (row) =>
        row.classFrom ? `the ${row.classFrom.level}, ${row.classFrom.tier ?? "all tiers"}` : "the default",
    },
    {
      id: "share",
      heading: "Share of the organization",
      right: true,
      value: (row) => row.share,
      cell: (row) => count(row.share),
    },
    ...(project
      ? [
          {
            id: "project_share",
            heading: "Share of the project in it",
            right: true,
            value: (row: Row) => row.projectShare,
            cell: (row: Row) => count(row.projectShare),
          },
        ]
      : []),
  ];
  return (
    <Card
      title="Effective class and share"
      about={
        apiKey
          ? "For requests of this key."
          : project
            ? "For requests of this project."
            : "For requests of the organization, unless a project or key lowers it."
      }
    >
      <Table
        label="Effective priorities"
        columns={columns}
        list={rows}
        rowKey={(row) => row.tier}
        csvName="effective-priorities"
        empty={null}
      />
    </Card>
  );
}
