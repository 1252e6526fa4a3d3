import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { readAll, useList } from "../../api/list";
import { useAction } from "../../components/action";
import { Badge, StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { ActionsMenu } from "../../components/menu";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { count } from "../../format/number";
import { utcMonth } from "../../format/time";
import { Cents } from "../../shell/money";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";

type Organization = Schemas["Organization"];
const route = getRouteApi("/signed/organizations");

const MOST_TOTALS = 5000;
const OF_OPERATORS = new Set(["requests", "amount"]);

/** Billed in this month (UTC), for who operates the deployment. */
function useSpendByOrganization() {
  const { canOperate } = useMyself();
  const month = utcMonth(new Date());
  return useQuery({
    queryKey: ["usage", "organizations", month],
    enabled: canOperate("usage.read"),
    queryFn: () =>
      readAll(
        (cursor) =>
          read(
            api.GET("/admin/v1/usage", {
              params: {
                query: {
                  limit: MOST_TOTALS,
                  cursor,
                  start: `${month}-01T00:00:00Z`,
                  bucket: "all",
                  group_by: ["organization"],
                },
              },
            }),
          ),
        2 * MOST_TOTALS,
      ),
  });
}

export function Organizations() {
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { canOperate } = useMyself();
  const [making, setMaking] = useState(false);
  const [asked, setAsked] = useState<Organization | null>(null);
  const list = useList(["organizations", search], (cursor) =>
    read(api.GET("/admin/v1/organizations", { params: { query: { limit: 100, cursor, ...search } } })),
  );
  const change = useAction(
    ({ id, disabled }: { id: string; disabled: boolean }) =>
      read(
        api.PATCH("/admin/v1/organizations/{organization_id}", {
          params: { path: { organization_id: id } },
          body: { disabled },
        }),
      ),
    {
      done: (made) => (made.disabled_at ? `${made.name} is disabled.` : `${made.name} is enabled.`),
      then: () => setAsked(null),
    },
  );
  const spend = useSpendByOrganization();
  const spent = (row: Organization) => spend.data?.find((each) => each.organization_id === row.id);
  const every: Column<Organization>[] = [
    {
      id: "name",
      heading: "Name",
      value: (row) => row.name,
      cell: (row) => (
        <span className="row">
          <Link className="primary-cell" to="/org/$organizationId" params={{ organizationId: row.id }}>
            {row.name}
          </Link>
          {row.operator && <Badge tone="accent">operates</Badge>}
          {row.internal && <Badge>internal, not billed</Badge>}
        </span>
      ),
    },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => (row.disabled_at ? "disabled" : "enabled"),
      cell: (row) => <StateBadge state={row.disabled_at ? "disabled" : "enabled"} />,
    },
    {
      id: "requests",
      heading: "Requests this month",
      right: true,
      value: (row) => spent(row)?.requests ?? 0,
      cell: (row) => count(spent(row)?.requests ?? 0),
    },
    {
      id: "amount",
      heading: "Cost this month",
      right: true,
      value: (row) => (spent(row)?.amount_micro ?? 0) / 1_000_000,
      cell: (row) => <Cents micro={spent(row)?.amount_micro ?? 0} />,
    },
    {
      id: "created_at",
      heading: "Made",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "id",
      heading: "Id",
      value: (row) => row.id,
      cell: (row) => <code className="small quiet">{row.id}</code>,
    },
    {
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) =>
        canOperate("organization.write") &&
        !row.operator && (
          <ActionsMenu
            label={`Actions for ${row.name}`}
            actions={[
              row.disabled_at
                ? { label: "Enable", onSelect: () => change.mutate({ id: row.id, disabled: false }) }
                : { label: "Disable…", tone: "bad", onSelect: () => setAsked(row) },
            ]}
          />
        ),
    },
  ];
  // totals by organization are the operators'; a member's own stand on the organization's pages
  const columns = every.filter((each) => canOperate("usage.read") || !OF_OPERATORS.has(each.id));
  const add = canOperate("organization.write") && (
    <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
      New organization
    </Button>
  );
  return (
    <Page
      title="Organizations"
      about="Customers of this deployment. Each sees only its own data."
      actions={add}
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
        label="Organizations"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="organizations"
        empty={
          <Empty title="No such organization" action={add}>
            Clear the filters, or make the organization.
          </Empty>
        }
      />
      {making && <NewOrganization onClose={() => setMaking(false)} />}
      {asked && (
        <Confirm
          title={`Disable ${asked.name}?`}
          action="Disable"
          typed={asked.name}
          busy={change.isPending}
          onConfirm={() => change.mutate({ id: asked.id, disabled: true })}
          onClose={() => setAsked(null)}
        >
          Its inference keys are refused within a second, and its admin keys at once. You can enable it again.
        </Confirm>
      )}
    </Page>
  );
}

function NewOrganization({ onClose }: { onClose: () => void }) {
  const navigate = route.useNavigate();
  const [name, setName] = useState("");
  const make = useAction((body: { name: string }) => read(api.POST("/admin/v1/organizations", { body })), {
    done: (made) => `${made.name} is created. Add its first member.`,
    quiet: true,
    then: (made) => {
      onClose();
      void navigate({ to: "/org/$organizationId", params: { organizationId: made.id } });
    },
  });
  return (
    <FormDialog
      title="New organization"
      submit="Make organization"
      busy={make.isPending}
      error={make.error}
      onSubmit={() => make.mutate({ name })}
      onClose={onClose}
    >
      <TextField
        label="Name"
        required
        autoFocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
