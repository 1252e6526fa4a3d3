import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { ProjectForm } from "./project-form";

type Project = Schemas["Project"];
const route = getRouteApi("/signed/org/$organizationId/projects");

export function Projects() {
  const { organizationId } = route.useParams();
  const { make, ...search } = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { can } = useMyself();
  const [making, setMaking] = useState(false);
  // the overview's "Make a project" leads here with the form open; going back later does not open it again
  useEffect(() => {
    if (make === undefined) return;
    setMaking(make);
    void navigate({ search: (old) => ({ ...old, make: undefined }), replace: true });
  }, [make, navigate]);
  const list = useList(["projects", organizationId, search], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/projects", {
        params: { path: { organization_id: organizationId }, query: { limit: 100, cursor, ...search } },
      }),
    ),
  );
  const columns: Column<Project>[] = [
    {
      id: "name",
      heading: "Name",
      value: (row) => row.name,
      cell: (row) => (
        <Link
          className="primary-cell"
          to="/org/$organizationId/projects/$projectId"
          params={{ organizationId, projectId: row.id }}
        >
          {row.name}
        </Link>
      ),
    },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => (row.disabled_at ? "disabled" : "enabled"),
      cell: (row) => <StateBadge state={row.disabled_at ? "disabled" : "enabled"} />,
    },
    { id: "models", heading: "Models", value: (row) => row.models?.join(", ") ?? "all" },
    { id: "tiers", heading: "Tiers", value: (row) => row.tiers?.join(", ") ?? "all" },
    {
      id: "created_at",
      heading: "Made",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ];
  const add = can("projects.write", organizationId) && (
    <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
      New project
    </Button>
  );
  const filtered = search.name !== undefined || search.disabled !== undefined;
  return (
    <Page title="Projects" about="A project has keys, limits and usage of its own." actions={add}>
      <Filters>
        <TextFilter
          label="Name"
          value={search.name}
          onChange={(name) => void navigate({ search: (old) => ({ ...old, name }), replace: true })}
        />
        <SelectFilter
          label="State"
          all="All"
          options={["enabled", "disabled"] as const}
          value={search.disabled === undefined ? undefined : search.disabled ? "disabled" : "enabled"}
          onChange={(state) =>
            void navigate({
              search: (old) => ({ ...old, disabled: state === undefined ? undefined : state === "disabled" }),
              replace: true,
            })
          }
        />
      </Filters>
      <Table
        label="Projects"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="projects"
        empty={
          filtered ? (
            <Empty title="No project matches">Clear the filters to see all.</Empty>
          ) : (
            <Empty title="No projects yet" action={add}>
              {add
                ? "Make a project, then a key in it. The key gives access to the API."
                : "An administrator of this organization makes projects. A project’s keys give access to the API."}
            </Empty>
          )
        }
      />
      {making && add && <ProjectForm organizationId={organizationId} onClose={() => setMaking(false)} />}
    </Page>
  );
}
