import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { ActionsMenu } from "../../components/menu";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { ROLES } from "../../shell/choices";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { RoleField } from "./members";

type ServiceAccount = Schemas["ServiceAccount"];
const route = getRouteApi("/signed/org/$organizationId/service-accounts");

export function ServiceAccounts() {
  const { organizationId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { can } = useMyself();
  const [open, setOpen] = useState<{ account: ServiceAccount | null; what: "form" | "remove" } | null>(null);
  const list = useList(["service-accounts", organizationId, search], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/service-accounts", {
        params: { path: { organization_id: organizationId }, query: { limit: 100, cursor, ...search } },
      }),
    ),
  );
  const toggle = useAction(
    ({ id, disabled }: { id: string; disabled: boolean }) =>
      read(
        api.PATCH("/admin/v1/service-accounts/{service_account_id}", {
          params: { path: { service_account_id: id } },
          body: { disabled },
        }),
      ),
    { done: (made) => (made.disabled_at ? `${made.name} is disabled.` : `${made.name} is enabled.`) },
  );
  const remove = useAction(
    (id: string) =>
      read(
        api.DELETE("/admin/v1/service-accounts/{service_account_id}", {
          params: { path: { service_account_id: id } },
        }),
      ),
    { done: "The service account and its admin keys are removed.", then: () => setOpen(null) },
  );
  const writes = can("members.write", organizationId);
  const columns: Column<ServiceAccount>[] = [
    {
      id: "name",
      heading: "Name",
      value: (row) => row.name,
      cell: (row) =>
        can("admin_keys.read", organizationId) ? (
          <Link
            className="primary-cell"
            to="/org/$organizationId/admin-keys"
            params={{ organizationId }}
            search={{ principal_id: row.id }}
          >
            {row.name}
          </Link>
        ) : (
          <span className="primary-cell">{row.name}</span>
        ),
    },
    { id: "role", heading: "Role", value: (row) => row.role },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => (row.disabled_at ? "disabled" : "active"),
      cell: (row) => <StateBadge state={row.disabled_at ? "disabled" : "active"} />,
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
      cell: (row) =>
        writes && (
          <ActionsMenu
            label={`Actions for ${row.name}`}
            actions={[
              { label: "Change…", onSelect: () => setOpen({ account: row, what: "form" }) },
              row.disabled_at
                ? { label: "Enable", onSelect: () => toggle.mutate({ id: row.id, disabled: false }) }
                : { label: "Disable", onSelect: () => toggle.mutate({ id: row.id, disabled: true }) },
              { label: "Remove…", tone: "bad", onSelect: () => setOpen({ account: row, what: "remove" }) },
            ]}
          />
        ),
    },
  ];
  const add = writes && (
    <Button kind="primary" icon="plus" onClick={() => setOpen({ account: null, what: "form" })}>
      New service account
    </Button>
  );
  return (
    <Page
      title="Service accounts"
      about="Programs that administer: scripts, pipelines. Their admin keys have their role."
      actions={add}
    >
      <Filters>
        <TextFilter
          label="Name"
          value={search.name}
          onChange={(name) => void navigate({ search: (old) => ({ ...old, name }), replace: true })}
        />
        <SelectFilter
          label="Role"
          all="All"
          options={ROLES}
          value={search.role}
          onChange={(role) => void navigate({ search: (old) => ({ ...old, role }), replace: true })}
        />
      </Filters>
      <Table
        label="Service accounts"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="service-accounts"
        empty={
          <Empty title="No service accounts" action={add}>
            Make one for each program that uses the admin API, so that the audit log can tell them apart.
          </Empty>
        }
      />
      {open?.what === "form" && (
        <AccountForm organizationId={organizationId} account={open.account} onClose={() => setOpen(null)} />
      )}
      {open?.what === "remove" && open.account && (
        <Confirm
          title={`Remove ${open.account.name}?`}
          action="Remove"
          busy={remove.isPending}
          onConfirm={() => open.account && remove.mutate(open.account.id)}
          onClose={() => setOpen(null)}
        >
          All its admin keys end at once.
        </Confirm>
      )}
    </Page>
  );
}

function AccountForm({
  organizationId,
  account,
  onClose,
}: {
  organizationId: string;
  account: ServiceAccount | null;
  onClose: () => void;
}) {
  const [name, setName] = useState(account?.name ?? "");
  const [role, setRole] = useState<Schemas["Role"]>(account?.role ?? "viewer");
  const save = useAction(
    () =>
      account === null
        ? read(
            api.POST("/admin/v1/organizations/{organization_id}/service-accounts", {
              params: { path: { organization_id: organizationId } },
              body: { name, role },
            }),
          )
        : read(
            api.PATCH("/admin/v1/service-accounts/{service_account_id}", {
              params: { path: { service_account_id: account.id } },
              body: { name, role },
            }),
          ),
    { quiet: true, done: (made) => `${made.name} is saved.`, then: onClose },
  );
  return (
    <FormDialog
      title={account ? `Change ${account.name}` : "New service account"}
      submit="Save"
      busy={save.isPending}
      error={save.error}
      onSubmit={() => save.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Name"
        required
        autoFocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <RoleField value={role} onChange={setRole} />
    </FormDialog>
  );
}
