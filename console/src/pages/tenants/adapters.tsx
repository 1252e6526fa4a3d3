import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField, TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { useProjects } from "./names";

type Adapter = Schemas["Adapter"];
const route = getRouteApi("/signed/org/$organizationId/adapters");

/** LoRA adapters of the organization and of its projects. */
export function Adapters() {
  const { organizationId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const { canOperate } = useMyself();
  const [open, setOpen] = useState<"none" | "new" | Adapter>("none");
  const projects = useProjects(organizationId);
  const projectName = (id: string | null) =>
    id === null ? "all" : (projects.data?.find((each) => each.id === id)?.name ?? id);
  const list = useList(["adapters", organizationId, search], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/adapters", {
        params: { path: { organization_id: organizationId }, query: { limit: 100, cursor, ...search } },
      }),
    ),
  );
  const remove = useAction(
    (adapter: Adapter) =>
      read(api.DELETE("/admin/v1/adapters/{adapter_id}", { params: { path: { adapter_id: adapter.id } } })),
    {
      quiet: true,
      stale: ["adapters"],
      done: (_, adapter) => `Requests for ${adapter.model}:${adapter.name} are refused from now on.`,
      then: () => setOpen("none"),
    },
  );
  const writes = canOperate("fleet.write");
  const columns: Column<Adapter>[] = [
    {
      id: "name",
      heading: "Clients write",
      value: (row) => `${row.model}:${row.name}`,
      cell: (row) => (
        <code className="primary-cell wrap">
          {row.model}:{row.name}
        </code>
      ),
    },
    { id: "project", heading: "For projects", value: (row) => projectName(row.project_id) },
    {
      id: "path",
      heading: "Where engines find it",
      value: (row) => row.path,
      cell: (row) => <code className="wrap">{row.path}</code>,
    },
    {
      id: "created_at",
      heading: "Made",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "actions",
      heading: "Actions",
      actions: true,
      value: () => null,
      cell: (row) =>
        writes && (
          <Button size="small" kind="plain" onClick={() => setOpen(row)}>
            Delete
          </Button>
        ),
    },
  ];
  const add = writes && (
    <Button kind="primary" icon="plus" onClick={() => setOpen("new")}>
      New adapter
    </Button>
  );
  const filtered = search.model !== undefined || search.project_id !== undefined;
  return (
    <Page
      title="Adapters"
      about="LoRA adapters: fine-tuned models of this organization. No other organization can use them."
      actions={add}
    >
      <Filters>
        <SelectFilter
          label="Project"
          all="All"
          options={projects.data?.map((each) => each.id) ?? (search.project_id ? [search.project_id] : [])}
          names={Object.fromEntries((projects.data ?? []).map((each) => [each.id, each.name]))}
          value={search.project_id}
          onChange={(project_id) => set({ project_id })}
        />
        <TextFilter label="Model" value={search.model} onChange={(model) => set({ model })} />
      </Filters>
      <Table
        label="Adapters"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="adapters"
        empty={
          filtered ? (
            <Empty title="No adapter matches">Clear the filters to see all.</Empty>
          ) : (
            <Empty title="No adapters" action={add}>
              {writes
                ? "Put a trained adapter’s folder where the engines of its model can read it, then add it here."
                : "The operator of this deployment adds adapters: send the model’s name and the trained adapter."}
            </Empty>
          )
        }
      />
      {open === "new" && <AdapterForm organizationId={organizationId} onClose={() => setOpen("none")} />}
      {typeof open === "object" && (
        <Confirm
          title={`Delete ${open.model}:${open.name}?`}
          action="Delete"
          typed={open.name}
          busy={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate(open)}
          onClose={() => setOpen("none")}
        >
          Requests for it are refused within a second; running requests end normally. The folder {open.path}{" "}
          stays.
        </Confirm>
      )}
    </Page>
  );
}

function AdapterForm({ organizationId, onClose }: { organizationId: string; onClose: () => void }) {
  const models = useQuery({ queryKey: ["models"], queryFn: () => read(api.GET("/admin/v1/models")) });
  const projects = useProjects(organizationId);
  const [model, setModel] = useState("");
  const [name, setName] = useState("");
  const [path, setPath] = useState("");
  const [project, setProject] = useState("");
  const make = useAction(
    () =>
      read(
        api.POST("/admin/v1/organizations/{organization_id}/adapters", {
          params: { path: { organization_id: organizationId } },
          body: { model, name, path, project_id: project || null },
        }),
      ),
    {
      quiet: true,
      stale: ["adapters"],
      done: (made) => `Clients can use ${made.model}:${made.name} within a second.`,
      then: onClose,
    },
  );
  return (
    <FormDialog
      title="New adapter"
      submit="Add adapter"
      busy={make.isPending}
      error={make.error ?? models.error}
      disabled={model === ""}
      onSubmit={() => make.mutate(undefined)}
      onClose={onClose}
    >
      <SelectField
        label="Model"
        required
        value={model}
        onChange={(event) => setModel(event.currentTarget.value)}
      >
        <option value="">Choose</option>
        {models.data?.data.map((each) => (
          <option key={each.name}>{each.name}</option>
        ))}
      </SelectField>
      <TextField
        label="Name"
        hint="Letters, digits, “.”, “_” and “-”. Clients write the model, a colon and this name."
        required
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <TextField
        label="Folder"
        hint="A folder in PEFT’s format that the engines of the model can read. Its contents must not change."
        required
        placeholder="/srv/adapters/support-2"
        value={path}
        onChange={(event) => setPath(event.currentTarget.value)}
      />
      <SelectField
        label="For projects"
        value={project}
        onChange={(event) => setProject(event.currentTarget.value)}
      >
        <option value="">all of the organization</option>
        {projects.data?.map((each) => (
          <option key={each.id} value={each.id}>
            {each.name}
          </option>
        ))}
      </SelectField>
    </FormDialog>
  );
}
