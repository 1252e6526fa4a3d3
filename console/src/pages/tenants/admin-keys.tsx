import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { readChoices, useList } from "../../api/list";
import { useAction } from "../../components/action";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField, TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { ActionsMenu, type MenuAction } from "../../components/menu";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { KEY_STATES } from "../../shell/choices";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { EarlierSecret } from "./earlier-secret";
import { EndsField, endOf, NewSecret, Rotate } from "./key-form";

type AdminKey = Schemas["AdminKey"];
const route = getRouteApi("/signed/org/$organizationId/admin-keys");

export function AdminKeys() {
  const { organizationId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { can, account } = useMyself();
  const [open, setOpen] = useState<{ what: "new" } | { what: "rotate" | "revoke"; key: AdminKey } | null>(
    null,
  );
  const list = useList(["admin-keys", organizationId, search], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/admin-keys", {
        params: { path: { organization_id: organizationId }, query: { limit: 100, cursor, ...search } },
      }),
    ),
  );
  const revoke = useAction(
    (id: string) =>
      read(
        api.POST("/admin/v1/admin-keys/{admin_key_id}/revoke", { params: { path: { admin_key_id: id } } }),
      ),
    { done: "The admin key is revoked.", then: () => setOpen(null) },
  );
  const writes = can("admin_keys.write", organizationId);
  const actionsOf = (key: AdminKey): MenuAction[] => {
    if (key.state === "revoked") return [];
    const mine = key.principal_id === account.member_id;
    const rotates = mine || (writes && key.principal_kind === "service_account");
    return [
      ...(rotates
        ? [
            {
              label: "Rotate…",
              disabled: key.state !== "active",
              onSelect: () => setOpen({ what: "rotate", key }),
            },
          ]
        : []),
      ...(writes
        ? [{ label: "Revoke…", tone: "bad" as const, onSelect: () => setOpen({ what: "revoke", key }) }]
        : []),
    ];
  };
  const columns: Column<AdminKey>[] = [
    {
      id: "name",
      heading: "Name",
      value: (row) => row.name,
      cell: (row) => <span className="primary-cell">{row.name}</span>,
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
    { id: "principal_kind", heading: "Of a", value: (row) => row.principal_kind.replace("_", " ") },
    { id: "role", heading: "Role", value: (row) => row.role },
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
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) => <ActionsMenu label={`Actions for ${row.name}`} actions={actionsOf(row)} />,
    },
  ];
  const add = writes && (
    <Button kind="primary" icon="plus" onClick={() => setOpen({ what: "new" })}>
      New admin key
    </Button>
  );
  return (
    <Page
      title="Admin keys"
      about="Keys for the admin API, with their owner’s role. They do not work for inference."
      actions={add}
    >
      <Filters>
        <SelectFilter
          label="State"
          all="All"
          options={KEY_STATES}
          value={search.state}
          onChange={(state) => void navigate({ search: (old) => ({ ...old, state }), replace: true })}
        />
        <TextFilter
          label="Owner's id"
          value={search.principal_id}
          onChange={(principal_id) =>
            void navigate({ search: (old) => ({ ...old, principal_id }), replace: true })
          }
        />
      </Filters>
      <Table
        label="Admin keys"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="admin-keys"
        empty={
          <Empty title="No admin keys" action={add}>
            With an admin key, a program can do everything that this console does.
          </Empty>
        }
      />
      {open?.what === "new" && <NewAdminKey organizationId={organizationId} onClose={() => setOpen(null)} />}
      {open?.what === "rotate" && (
        <Rotate
          name={open.key.name}
          rotate={(body) =>
            read(
              api.POST("/admin/v1/admin-keys/{admin_key_id}/rotate", {
                params: { path: { admin_key_id: open.key.id } },
                body,
              }),
            )
          }
          onClose={() => setOpen(null)}
        />
      )}
      {open?.what === "revoke" && (
        <Confirm
          title={`Revoke ${open.key.name}?`}
          action="Revoke"
          busy={revoke.isPending}
          onConfirm={() => revoke.mutate(open.key.id)}
          onClose={() => setOpen(null)}
        >
          It is refused from now on. This cannot be undone.
        </Confirm>
      )}
    </Page>
  );
}

function NewAdminKey({ organizationId, onClose }: { organizationId: string; onClose: () => void }) {
  const { account, organization } = useMyself();
  const accounts = useQuery({
    queryKey: ["service-accounts", organizationId, "for keys"],
    queryFn: () =>
      readChoices((cursor) =>
        read(
          api.GET("/admin/v1/organizations/{organization_id}/service-accounts", {
            params: {
              path: { organization_id: organizationId },
              query: { limit: 100, disabled: false, cursor },
            },
          }),
        ),
      ),
  });
  const own = organizationId === organization.id;
  const [name, setName] = useState("");
  const [owner, setOwner] = useState(own ? account.member_id : "");
  const [ends, setEnds] = useState<Parameters<typeof endOf>[0]>("90 days");
  const make = useAction(
    () =>
      read(
        api.POST("/admin/v1/organizations/{organization_id}/admin-keys", {
          params: { path: { organization_id: organizationId } },
          body: { principal_id: owner, name, expires_at: endOf(ends) },
        }),
      ),
    { quiet: true },
  );
  if (make.data)
    return (
      <NewSecret title={`Admin key ${make.data.key.name}`} secret={make.data.secret} onClose={onClose} />
    );
  return (
    <FormDialog
      title="New admin key"
      submit="Make key"
      busy={make.isPending}
      error={make.error}
      disabled={owner === ""}
      onSubmit={() => make.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Name"
        required
        autoFocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <SelectField label="Of" value={owner} onChange={(event) => setOwner(event.currentTarget.value)}>
        {own ? (
          <option value={account.member_id}>{account.name} (you)</option>
        ) : (
          <option value="">Choose…</option>
        )}
        {accounts.data?.map((each) => (
          <option key={each.id} value={each.id}>
            {each.name} ({each.role})
          </option>
        ))}
      </SelectField>
      <EndsField value={ends} onChange={setEnds} />
    </FormDialog>
  );
}
