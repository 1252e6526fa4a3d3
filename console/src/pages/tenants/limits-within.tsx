/** Every rule within an organization, or a project of it, and what it is set for: nobody has to go through all keys. */
import { Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { Empty } from "../../components/notice";
import { Card } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { type Money, useMoney } from "../../shell/money";
import { COUNTERS, labelOf } from "./limit-names";
import { shownLimit } from "./limits-of";

type Rule = Schemas["LimitWithin"];

export function LimitsWithin({
  organizationId,
  project,
}: {
  organizationId: string;
  project: string | undefined;
}) {
  const money = useMoney();
  const list = useList(["limits", "within", organizationId, project], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/limits/within", {
        params: {
          path: { organization_id: organizationId },
          query: { limit: 100, cursor, ...(project ? { project_id: project } : {}) },
        },
      }),
    ),
  );
  const columns: Column<Rule>[] = [
    {
      id: "of",
      heading: "Set for",
      value: (row) => row.name,
      cell: (row) => <SetFor rule={row} organizationId={organizationId} />,
    },
    { id: "level", heading: "Which is", value: placeOf },
    { id: "tier", heading: "Requests of", value: (row) => row.tier ?? "all tiers" },
    { id: "limits", heading: "Limits", value: (row) => limitsOf(row, money) },
    {
      id: "updated_at",
      heading: "Set",
      value: (row) => row.updated_at,
      cell: (row) => <Time at={row.updated_at} />,
    },
  ];
  return (
    <Card
      title={project ? "All limits within the project" : "All limits within the organization"}
      about="Each rule and its level. A request must pass every rule that applies to it."
    >
      <Table
        label="Limits within"
        columns={columns}
        list={list}
        rowKey={(row) => row.rule_name}
        csvName="limits"
        empty={
          <Empty title="No limits">
            {project
              ? "Neither the project nor any of its keys has a limit; the organization’s limits apply."
              : "Neither the organization nor any of its projects and keys has a limit."}
          </Empty>
        }
      />
    </Card>
  );
}

function SetFor({ rule, organizationId }: { rule: Rule; organizationId: string }) {
  if (rule.level === "organization" || rule.project_id === null)
    return <span className="primary-cell">{rule.name}</span>;
  if (rule.level === "project")
    return (
      <Link
        className="primary-cell"
        to="/org/$organizationId/limits"
        params={{ organizationId }}
        search={{ project: rule.project_id }}
      >
        {rule.name}
      </Link>
    );
  return (
    <Link
      className="primary-cell"
      to="/org/$organizationId/limits"
      params={{ organizationId }}
      search={{ project: rule.project_id, key: rule.subject_id }}
    >
      {rule.name}
    </Link>
  );
}

function placeOf(rule: Rule): string {
  if (rule.level === "organization") return "the organization";
  return rule.level === "project" ? "a project" : `a key of ${rule.project_name}`;
}

function limitsOf(rule: Rule, money: Money): string {
  return COUNTERS.filter(({ name }) => rule.limits[name] != null)
    .map(({ name }) => `${labelOf(name)}: ${shownLimit(name, rule.limits[name], money)}`)
    .join("; ");
}
