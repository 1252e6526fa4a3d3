import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm } from "../../components/dialog";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { Pending } from "../../components/pending";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { KEY_STATES } from "../../shell/choices";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { EarlierSecret } from "./earlier-secret";
import { KeyActions } from "./key-actions";
import { NewKey } from "./key-form";
import { ProjectForm } from "./project-form";

type Key = Schemas["Key"];
const route = getRouteApi("/signed/org/$organizationId/projects/$projectId");

export function ProjectPage() {
  const { organizationId, projectId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { can } = useMyself();
  const [open, setOpen] = useState<"none" | "key" | "edit" | "disable">("none");
  const sees = can("keys.read", organizationId);
  const path = { project_id: projectId };
  const project = useQuery({
    queryKey: ["project", projectId],
    queryFn: () => read(api.GET("/admin/v1/projects/{project_id}", { params: { path } })),
  });
  const keys = useList(
    ["keys", projectId, search],
    (cursor) =>
      read(
        api.GET("/admin/v1/projects/{project_id}/keys", {
          params: { path, query: { limit: 100, cursor, ...search } },
        }),
      ),
    { enabled: sees },
  );
  const toggle = useAction(
    (disabled: boolean) =>
      read(api.PATCH("/admin/v1/projects/{project_id}", { params: { path }, body: { disabled } })),
    {
      done: (made) => (made.disabled_at ? "The project is disabled." : "The project is enabled."),
      then: () => setOpen("none"),
    },
  );
  if (!project.data) return <Pending title="Project" query={project} />;
  const columns: Column<Key>[] = [
    {
      id: "name",
      heading: "Name",
      value: (row) => row.name,
      cell: (row) => (
        <Link
          className="primary-cell"
          to="/org/$organizationId/projects/$projectId/keys/$keyId"
          params={{ organizationId, projectId, keyId: row.id }}
        >
          {row.name}
        </Link>
      ),
    },
    { id: "display", heading: "Key", value: (row) => row.display, cell: (row) => <code>{row.display}</code> },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => row.state,
      cell: (row) => (
        <span className="row">
          <StateBadge state={row.state} />
          <EarlierSecret until={row.state === "active" ? row.previous_expires_at : null} />
        </span>
      ),
    },
    { id: "scopes", heading: "Scopes", value: (row) => row.scopes?.join(", ") ?? "all" },
    {
      id: "last_used_at",
      heading: "Last used",
      value: (row) => row.last_used_at,
      cell: (row) => <Time at={row.last_used_at} />,
    },
    {
      id: "expires_at",
      heading: "Ends",
      value: (row) => row.expires_at,
      cell: (row) => <Time at={row.expires_at} />,
    },
    {
      id: "created_at",
      heading: "Made",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) => <KeyActions apiKey={row} organizationId={organizationId} />,
    },
  ];
  const add = can("keys.write", organizationId) && !project.data.disabled_at && (
    <Button kind="primary" icon="plus" onClick={() => setOpen("key")}>
      New key
    </Button>
  );
  const filtered = search.state !== undefined || search.name !== undefined;
  return (
    <Page
      title={project.data.name}
      crumbs={[
        <Link key="projects" to="/org/$organizationId/projects" params={{ organizationId }}>
          Projects
        </Link>,
      ]}
      about={
        <span className="row">
          <StateBadge state={project.data.disabled_at ? "disabled" : "enabled"} />
          <span>
            Models: {project.data.models?.join(", ") ?? "all"} · Tiers:{" "}
            {project.data.tiers?.join(", ") ?? "all"}
          </span>
        </span>
      }
      actions={
        <>
          <Link
            className="button"
            to="/org/$organizationId/limits"
            params={{ organizationId }}
            search={{ project: projectId }}
          >
            Limits
          </Link>
          <Link
            className="button"
            to="/org/$organizationId/usage"
            params={{ organizationId }}
            search={{ project_id: projectId, by: "key" }}
          >
            Usage
          </Link>
          {can("projects.write", organizationId) && (
            <>
              <Button onClick={() => setOpen("edit")}>Change</Button>
              {project.data.disabled_at ? (
                <Button busy={toggle.isPending} onClick={() => toggle.mutate(false)}>
                  Enable
                </Button>
              ) : (
                <Button kind="danger" onClick={() => setOpen("disable")}>
                  Disable
                </Button>
              )}
            </>
          )}
          {add}
        </>
      }
    >
      <Filters>
        <TextFilter
          label="Name"
          value={search.name}
          onChange={(name) => void navigate({ search: (old) => ({ ...old, name }), replace: true })}
        />
        <SelectFilter
          label="State"
          all="All"
          options={KEY_STATES}
          value={search.state}
          onChange={(state) => void navigate({ search: (old) => ({ ...old, state }), replace: true })}
        />
      </Filters>
      <Table
        label="Keys"
        columns={columns}
        list={keys}
        rowKey={(row) => row.id}
        csvName={`keys of ${project.data.name}`}
        empty={
          !sees ? (
            <Empty title="Your role does not see keys">
              Owners, administrators, developers and viewers of this organization see them.
            </Empty>
          ) : filtered ? (
            <Empty title="No key matches">Clear the filters to see all.</Empty>
          ) : (
            <Empty title="No keys yet" action={add}>
              {add
                ? "Make a key. Its secret is shown once; an application sends it with every request."
                : project.data.disabled_at
                  ? "The project is disabled, so its keys do not work."
                  : "An administrator or a developer of this organization makes keys."}
            </Empty>
          )
        }
      />
      {open === "key" && (
        <NewKey organizationId={organizationId} projectId={projectId} onClose={() => setOpen("none")} />
      )}
      {open === "edit" && (
        <ProjectForm organizationId={organizationId} project={project.data} onClose={() => setOpen("none")} />
      )}
      {open === "disable" && (
        <Confirm
          title={`Disable ${project.data.name}?`}
          action="Disable"
          typed={project.data.name}
          busy={toggle.isPending}
          onConfirm={() => toggle.mutate(true)}
          onClose={() => setOpen("none")}
        >
          All its keys are refused within a second. It can be enabled again.
        </Confirm>
      )}
    </Page>
  );
}
