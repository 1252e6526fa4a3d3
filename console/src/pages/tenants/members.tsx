import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { Badge, StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Secret } from "../../components/copy";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField, TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { ActionsMenu } from "../../components/menu";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { ShownOnce } from "../../components/shown-once";
import { type Column, Table } from "../../components/table";
import { FullTime, Time } from "../../components/time";
import { ROLES } from "../../shell/choices";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";

type Member = Schemas["Member"];
type Role = Schemas["Role"];
const route = getRouteApi("/signed/org/$organizationId/members");

export const ROLE_ABOUT: Record<Role, string> = {
  owner: "everything, prompts' storage included",
  admin: "everything but renaming the organization, its budget and its prompts' storage",
  developer: "reads all, makes and revokes keys",
  viewer: "reads",
  billing: "usage, invoices, limits and webhooks",
};

export function RoleField({ value, onChange }: { value: Role; onChange: (role: Role) => void }) {
  return (
    <SelectField label="Role" value={value} onChange={(event) => onChange(event.currentTarget.value as Role)}>
      {ROLES.map((role) => (
        <option key={role} value={role}>
          {role}: {ROLE_ABOUT[role]}
        </option>
      ))}
    </SelectField>
  );
}

/** Invited: nobody has signed in as this member yet. */
function stateOf(member: Member): "disabled" | "active" | "invited" {
  if (member.disabled_at) return "disabled";
  return member.has_account ? "active" : "invited";
}

type Open =
  | { what: "add" }
  | { what: "change" | "remove" | "invite"; member: Member }
  | { what: "link"; url: string; expires_at: string };

export function Members() {
  const { organizationId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { can, account } = useMyself();
  const [open, setOpen] = useState<Open | null>(null);
  const path = { organization_id: organizationId };
  const list = useList(["members", organizationId, search], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/members", {
        params: { path, query: { limit: 100, cursor, ...search } },
      }),
    ),
  );
  const link = useAction(
    (id: string) =>
      read(api.POST("/admin/v1/members/{member_id}/console-link", { params: { path: { member_id: id } } })),
    {
      then: (made) =>
        setOpen({ what: "link", url: new URL(made.url, location.origin).href, expires_at: made.expires_at }),
    },
  );
  const toggle = useAction(
    ({ id, disabled }: { id: string; disabled: boolean }) =>
      read(
        api.PATCH("/admin/v1/members/{member_id}", {
          params: { path: { member_id: id } },
          body: { disabled },
        }),
      ),
    { done: (made) => (made.disabled_at ? `${made.name} is disabled.` : `${made.name} is enabled.`) },
  );
  const remove = useAction(
    (id: string) =>
      read(api.DELETE("/admin/v1/members/{member_id}", { params: { path: { member_id: id } } })),
    { done: "The member and all their admin keys are removed.", then: () => setOpen(null) },
  );
  const writes = can("members.write", organizationId);
  const columns: Column<Member>[] = [
    {
      id: "name",
      heading: "Name",
      value: (row) => row.name,
      cell: (row) => (
        <span className="row">
          <span className="primary-cell">{row.name}</span>
          {row.id === account.member_id && <Badge tone="accent">you</Badge>}
        </span>
      ),
    },
    { id: "email", heading: "Email", value: (row) => row.email },
    { id: "role", heading: "Role", value: (row) => row.role },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: stateOf,
      cell: (row) => <StateBadge state={stateOf(row)} />,
    },
    {
      id: "created_at",
      heading: "Added",
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
              { label: "Link to sign in…", onSelect: () => setOpen({ what: "invite", member: row }) },
              { label: "Change…", onSelect: () => setOpen({ what: "change", member: row }) },
              row.disabled_at
                ? { label: "Enable", onSelect: () => toggle.mutate({ id: row.id, disabled: false }) }
                : { label: "Disable", onSelect: () => toggle.mutate({ id: row.id, disabled: true }) },
              { label: "Remove…", tone: "bad", onSelect: () => setOpen({ what: "remove", member: row }) },
            ]}
          />
        ),
    },
  ];
  const add = writes && (
    <Button kind="primary" icon="plus" onClick={() => setOpen({ what: "add" })}>
      Add member
    </Button>
  );
  return (
    <Page
      title="Members"
      about="People who may look at this organization, and what each may change."
      actions={add}
    >
      <Filters>
        <TextFilter
          label="Email"
          value={search.email}
          onChange={(email) => void navigate({ search: (old) => ({ ...old, email }), replace: true })}
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
        label="Members"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="members"
        empty={
          search.email || search.role ? (
            <Empty title="No member matches">Clear the filters to see all members.</Empty>
          ) : (
            <Empty title="No members" action={add}>
              {add
                ? "Add somebody: they get a link to choose a password."
                : "Those who administer it are of another organization."}
            </Empty>
          )
        }
      />
      {open?.what === "add" && (
        <MemberForm
          organizationId={organizationId}
          onClose={() => setOpen(null)}
          onMade={(made) => link.mutate(made.id)}
        />
      )}
      {open?.what === "change" && (
        <MemberForm organizationId={organizationId} member={open.member} onClose={() => setOpen(null)} />
      )}
      {open?.what === "remove" && (
        <Confirm
          title={`Remove ${open.member.name}?`}
          action="Remove"
          busy={remove.isPending}
          onConfirm={() => remove.mutate(open.member.id)}
          onClose={() => setOpen(null)}
        >
          All their admin keys and sessions end at once. What they did stays in the audit log.
        </Confirm>
      )}
      {open?.what === "invite" && (
        <FormDialog
          title={`Make a link for ${open.member.name}?`}
          submit="Make the link"
          busy={link.isPending}
          error={link.error}
          onSubmit={() => link.mutate(open.member.id)}
          onClose={() => setOpen(null)}
        >
          <p>
            The person who opens it chooses a password for {open.member.email} and is signed in. An earlier
            link that nobody opened ends.
          </p>
        </FormDialog>
      )}
      {open?.what === "link" && (
        <ShownOnce title="Link to sign in" onClose={() => setOpen(null)}>
          <p>
            Send it to the member alone: the person who opens it chooses the password. It opens once, until{" "}
            <FullTime at={open.expires_at} />.
          </p>
          <Secret
            secret={open.url}
            label="Link"
            about="It is shown this once. A new link can be made at any time; the earlier one then opens nothing."
          />
        </ShownOnce>
      )}
    </Page>
  );
}

function MemberForm({
  organizationId,
  member,
  onClose,
  onMade,
}: {
  organizationId: string;
  member?: Member;
  onClose: () => void;
  onMade?: (made: Member) => void;
}) {
  const [form, setForm] = useState({
    email: member?.email ?? "",
    name: member?.name ?? "",
    role: member?.role ?? ("developer" as Role),
  });
  const save = useAction(
    () =>
      member === undefined
        ? read(
            api.POST("/admin/v1/organizations/{organization_id}/members", {
              params: { path: { organization_id: organizationId } },
              body: form,
            }),
          )
        : read(
            api.PATCH("/admin/v1/members/{member_id}", {
              params: { path: { member_id: member.id } },
              body: { name: form.name, role: form.role },
            }),
          ),
    {
      quiet: true,
      done: (made) => (member ? `${made.name} is changed.` : `${made.name} is added.`),
      then: (made) => {
        onClose();
        onMade?.(made);
      },
    },
  );
  return (
    <FormDialog
      title={member ? `Change ${member.name}` : "Add member"}
      submit={member ? "Save" : "Add"}
      busy={save.isPending}
      error={save.error}
      onSubmit={() => save.mutate(undefined)}
      onClose={onClose}
    >
      {member === undefined && (
        <TextField
          label="Email"
          type="email"
          required
          autoFocus
          value={form.email}
          onChange={(event) => setForm({ ...form, email: event.currentTarget.value })}
        />
      )}
      <TextField
        label="Name"
        required
        value={form.name}
        onChange={(event) => setForm({ ...form, name: event.currentTarget.value })}
      />
      <RoleField value={form.role} onChange={(role) => setForm({ ...form, role })} />
    </FormDialog>
  );
}
