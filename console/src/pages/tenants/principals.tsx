/** Members and service accounts: their page, with the actions on each, and their form. */

import { type ReactNode, useState } from "react";
import type { Schemas } from "../../api/client";
import type { List } from "../../api/list";
import { useAction } from "../../components/action";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField, TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { ActionsMenu, type MenuAction } from "../../components/menu";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { ROLES } from "../../shell/choices";

type Role = Schemas["Role"];

interface Principal {
  id: string;
  name: string;
  role: Role;
  disabled_at: string | null;
  created_at: string;
}

export const ROLE_ABOUT: Record<Role, string> = {
  owner: "everything, including the storage of prompts",
  admin: "everything except the organization's name, its budget and the storage of prompts",
  developer: "reads everything, makes and revokes keys",
  viewer: "reads",
  billing: "usage, invoices, limits and webhooks",
};

function RoleField({ value, onChange }: { value: Role; onChange: (role: Role) => void }) {
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

interface PrincipalsProps<P extends Principal> {
  title: string;
  about: string;
  csvName: string;
  list: List<P>;
  writes: boolean;
  /** The action that makes one. */
  make: string;
  /** Columns before the role. */
  columns: Column<P>[];
  created: string;
  stateOf: (row: P) => string;
  /** Actions before the common ones. */
  actions?: (row: P) => MenuAction[];
  toggle: (id: string, disabled: boolean) => Promise<P>;
  remove: (id: string) => Promise<unknown>;
  removed: string;
  /** What ends with a removed one. */
  ends: string;
  filter: { label: string; value: string | undefined; set: (value: string | undefined) => void };
  chosenRole: Role | undefined;
  setRole: (role: Role | undefined) => void;
  empty: (add: ReactNode) => ReactNode;
  form: (row: P | null, onClose: () => void) => ReactNode;
  children?: ReactNode;
}

export function Principals<P extends Principal>(props: PrincipalsProps<P>) {
  const [open, setOpen] = useState<{ what: "form" | "remove"; row: P | null } | null>(null);
  const close = () => setOpen(null);
  const toggle = useAction((row: P) => props.toggle(row.id, row.disabled_at === null), {
    done: (made) => (made.disabled_at ? `${made.name} is disabled.` : `${made.name} is enabled.`),
  });
  const remove = useAction(props.remove, { done: props.removed, then: close });
  const columns: Column<P>[] = [
    ...props.columns,
    { id: "role", heading: "Role", value: (row) => row.role },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: props.stateOf,
      cell: (row) => <StateBadge state={props.stateOf(row)} />,
    },
    {
      id: "created_at",
      heading: props.created,
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) =>
        props.writes && (
          <ActionsMenu
            label={`Actions for ${row.name}`}
            actions={[
              ...(props.actions?.(row) ?? []),
              { label: "Change…", onSelect: () => setOpen({ what: "form", row }) },
              { label: row.disabled_at ? "Enable" : "Disable", onSelect: () => toggle.mutate(row) },
              { label: "Remove…", tone: "bad", onSelect: () => setOpen({ what: "remove", row }) },
            ]}
          />
        ),
    },
  ];
  const add = props.writes && (
    <Button kind="primary" icon="plus" onClick={() => setOpen({ what: "form", row: null })}>
      {props.make}
    </Button>
  );
  return (
    <Page title={props.title} about={props.about} actions={add}>
      <Filters>
        <TextFilter label={props.filter.label} value={props.filter.value} onChange={props.filter.set} />
        <SelectFilter
          label="Role"
          all="All"
          options={ROLES}
          value={props.chosenRole}
          onChange={props.setRole}
        />
      </Filters>
      <Table
        label={props.title}
        columns={columns}
        list={props.list}
        rowKey={(row) => row.id}
        csvName={props.csvName}
        empty={props.empty(add)}
      />
      {open?.what === "form" && props.form(open.row, close)}
      {open?.what === "remove" && open.row && (
        <Confirm
          title={`Remove ${open.row.name}?`}
          action="Remove"
          busy={remove.isPending}
          onConfirm={() => open.row && remove.mutate(open.row.id)}
          onClose={close}
        >
          {props.ends}
        </Confirm>
      )}
      {props.children}
    </Page>
  );
}

interface PrincipalFormProps<P extends Principal> {
  title: string;
  submit: string;
  row: P | null;
  /** The role of a new one, unless another is chosen. */
  firstRole: Role;
  save: (fields: { name: string; role: Role }) => Promise<P>;
  done: (made: P) => string;
  onMade?: (made: P) => void;
  onClose: () => void;
  /** Fields before the name. */
  children?: ReactNode;
}

export function PrincipalForm<P extends Principal>(props: PrincipalFormProps<P>) {
  const [name, setName] = useState(props.row?.name ?? "");
  const [role, setRole] = useState(props.row?.role ?? props.firstRole);
  const save = useAction(() => props.save({ name, role }), {
    quiet: true,
    done: props.done,
    then: (made) => {
      props.onClose();
      props.onMade?.(made);
    },
  });
  return (
    <FormDialog
      title={props.title}
      submit={props.submit}
      busy={save.isPending}
      error={save.error}
      onSubmit={() => save.mutate(undefined)}
      onClose={props.onClose}
    >
      {props.children}
      <TextField
        label="Name"
        required
        autoFocus={props.children === undefined}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <RoleField value={role} onChange={setRole} />
    </FormDialog>
  );
}
