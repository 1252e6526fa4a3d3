/** One subject's classes and shares. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField, TextField } from "../../components/field";
import { ActionsMenu } from "../../components/menu";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { count } from "../../format/number";
import { TIERS } from "../../shell/choices";
import { useMyself } from "../../shell/session";
import {
  CLASSES,
  MOST_SHARE,
  type PriorityRule,
  type ServiceClass,
  shareOf,
  USUAL_SHARE,
} from "./priority-rules";

type Level = Schemas["Level"];
type NewPriority = Schemas["NewPriority"];

const CALLS = {
  organization: {
    rules: (id: string) =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/priorities", {
          params: { path: { organization_id: id } },
        }),
      ),
    put: (id: string, tier_name: string, body: NewPriority) =>
      read(
        api.PUT("/admin/v1/organizations/{organization_id}/priorities/{tier_name}", {
          params: { path: { organization_id: id, tier_name } },
          body,
        }),
      ),
    remove: (id: string, tier_name: string) =>
      read(
        api.DELETE("/admin/v1/organizations/{organization_id}/priorities/{tier_name}", {
          params: { path: { organization_id: id, tier_name } },
        }),
      ),
  },
  project: {
    rules: (id: string) =>
      read(api.GET("/admin/v1/projects/{project_id}/priorities", { params: { path: { project_id: id } } })),
    put: (id: string, tier_name: string, body: NewPriority) =>
      read(
        api.PUT("/admin/v1/projects/{project_id}/priorities/{tier_name}", {
          params: { path: { project_id: id, tier_name } },
          body,
        }),
      ),
    remove: (id: string, tier_name: string) =>
      read(
        api.DELETE("/admin/v1/projects/{project_id}/priorities/{tier_name}", {
          params: { path: { project_id: id, tier_name } },
        }),
      ),
  },
  key: {
    rules: (id: string) =>
      read(api.GET("/admin/v1/keys/{key_id}/priorities", { params: { path: { key_id: id } } })),
    put: (id: string, tier_name: string, body: NewPriority) =>
      read(
        api.PUT("/admin/v1/keys/{key_id}/priorities/{tier_name}", {
          params: { path: { key_id: id, tier_name } },
          body,
        }),
      ),
    remove: (id: string, tier_name: string) =>
      read(
        api.DELETE("/admin/v1/keys/{key_id}/priorities/{tier_name}", {
          params: { path: { key_id: id, tier_name } },
        }),
      ),
  },
} satisfies Record<Level, unknown>;

export function usePriorities(level: Level, subjectId: string | undefined) {
  return useQuery({
    queryKey: ["priorities", level, subjectId],
    queryFn: () => CALLS[level].rules(subjectId ?? ""),
    enabled: subjectId !== undefined,
  });
}

const TITLES: Record<Level, string> = {
  organization: "Priorities of the organization",
  project: "Priorities of the project",
  key: "Priorities of the key",
};
const UNSAID: Record<Level, string> = {
  organization: "as usual",
  project: "as the organization",
  key: "as its project",
};
const FOLLOW = "It holds now: gateways follow within a second.";

export function PrioritiesOf({
  level,
  subjectId,
  organizationId,
}: {
  level: Level;
  subjectId: string;
  organizationId: string;
}) {
  const { can, canOperate } = useMyself();
  const rules = usePriorities(level, subjectId);
  const [open, setOpen] = useState<{ what: "form" | "remove"; rule: PriorityRule | null } | null>(null);
  const remove = useAction((tier: string) => CALLS[level].remove(subjectId, tier), {
    quiet: true,
    stale: ["priorities"],
    done: "The rule is removed.",
    then: () => setOpen(null),
  });
  const writes = level === "organization" ? canOperate("limits.write") : can("limits.write", organizationId);
  const add = writes && (
    <Button size="small" icon="plus" onClick={() => setOpen({ what: "form", rule: null })}>
      Set a priority
    </Button>
  );
  const unsaid = UNSAID[level];
  const columns: Column<PriorityRule>[] = [
    {
      id: "tier",
      heading: "Requests of",
      value: (row) => row.tier ?? "all tiers",
      cell: (row) => <Badge tone="accent">{row.tier ?? "all tiers"}</Badge>,
    },
    { id: "class", heading: "Class", value: (row) => row.service_class ?? unsaid },
    ...(level === "key"
      ? []
      : [
          {
            id: "share",
            heading: "Share",
            right: true,
            value: (row: PriorityRule) => row.share,
            cell: (row: PriorityRule) => (row.share === null ? unsaid : count(row.share)),
          },
        ]),
    {
      id: "actions",
      heading: "Actions",
      actions: true,
      value: () => null,
      cell: (row) =>
        writes && (
          <ActionsMenu
            label={`Actions for ${row.tier ?? "all tiers"}`}
            actions={[
              { label: "Change…", onSelect: () => setOpen({ what: "form", rule: row }) },
              { label: "Remove…", tone: "bad", onSelect: () => setOpen({ what: "remove", rule: row }) },
            ]}
          />
        ),
    },
  ];
  return (
    <Card title={TITLES[level]} actions={add}>
      {rules.error ? (
        <ErrorNotice error={rules.error} retry={() => void rules.refetch()} />
      ) : !rules.data ? (
        <Loading lines={3} />
      ) : (
        <Table
          label={`Priorities ${TITLES[level].toLowerCase()}`}
          columns={columns}
          list={rules.data.data}
          rowKey={(row) => row.tier ?? "all"}
          empty={
            <Empty title="Nothing is said here">
              {level === "organization"
                ? writes
                  ? `It is standard, with a share of ${USUAL_SHARE}. Set another to let it go first, or to let it yield.`
                  : `It is standard, with a share of ${USUAL_SHARE}. Whoever runs this deployment can change that.`
                : level === "project"
                  ? "Its requests go as the organization’s do. Set offline for what can wait."
                  : "Its requests go as its project’s do. Set offline for what can wait."}
            </Empty>
          }
        />
      )}
      {open?.what === "form" && (
        <PriorityForm level={level} subjectId={subjectId} rule={open.rule} onClose={() => setOpen(null)} />
      )}
      {open?.what === "remove" && open.rule && (
        <Confirm
          title={`Remove the priority for ${open.rule.tier ?? "all tiers"}?`}
          action="Remove"
          busy={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate(open.rule?.tier ?? "all")}
          onClose={() => setOpen(null)}
        >
          What the other rules say holds then, within a second.
        </Confirm>
      )}
    </Card>
  );
}

function PriorityForm({
  level,
  subjectId,
  rule,
  onClose,
}: {
  level: Level;
  subjectId: string;
  rule: PriorityRule | null;
  onClose: () => void;
}) {
  const [tier, setTier] = useState<string>(rule?.tier ?? "all");
  const [serviceClass, setServiceClass] = useState<ServiceClass | "">(rule?.service_class ?? "");
  const [text, setText] = useState(rule?.share == null ? "" : String(rule.share));
  const share = shareOf(text);
  const save = useAction(
    () =>
      CALLS[level].put(subjectId, tier, {
        service_class: serviceClass === "" ? null : serviceClass,
        share: share ?? null,
      }),
    { quiet: true, stale: ["priorities"], done: FOLLOW, then: onClose },
  );
  return (
    <FormDialog
      title={rule ? `Priority for ${rule.tier ?? "all tiers"}` : "Set a priority"}
      submit="Save"
      busy={save.isPending}
      error={save.error}
      disabled={share === undefined || (serviceClass === "" && share === null)}
      onSubmit={() => save.mutate(undefined)}
      onClose={onClose}
    >
      {rule === null && (
        <SelectField label="Tier" value={tier} onChange={(event) => setTier(event.currentTarget.value)}>
          <option value="all">all tiers</option>
          {TIERS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </SelectField>
      )}
      <SelectField
        label="Class"
        hint="Interactive goes before standard. Offline yields to both and is refused first when engines are full."
        value={serviceClass}
        onChange={(event) =>
          setServiceClass(CLASSES.find((each) => each === event.currentTarget.value) ?? "")
        }
      >
        <option value="">{UNSAID[level]}</option>
        {CLASSES.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </SelectField>
      {level !== "key" && (
        <TextField
          label="Share"
          hint={
            level === "organization"
              ? "A weight among organizations: 200 beside 100 is given twice the tokens while engines are busy."
              : "A weight among the projects of the organization."
          }
          inputMode="numeric"
          placeholder={String(USUAL_SHARE)}
          error={share === undefined ? `A whole number from 1 to ${count(MOST_SHARE)}.` : null}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
      )}
    </FormDialog>
  );
}
