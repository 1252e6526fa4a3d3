/** One subject's classes and shares. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { Badge } from "../../components/badge";
import { SelectField, TextField } from "../../components/field";
import { ActionsMenu } from "../../components/menu";
import { Empty } from "../../components/notice";
import { type Column, Table } from "../../components/table";
import { count } from "../../format/number";
import { useMyself } from "../../shell/session";
import {
  CLASSES,
  MOST_SHARE,
  type PriorityRule,
  type ServiceClass,
  shareOf,
  USUAL_SHARE,
} from "./priority-rules";
import { RuleForm, RulesOf, type SubjectProps } from "./rules-of";

type Level = Schemas["Level"];

const STALE = ["priorities"];
const UNSAID: Record<Level, string> = {
  organization: "as usual",
  project: "as the organization",
  key: "as its project",
};

export function usePriorities(level: Level, subjectId: string | undefined) {
  return useQuery({
    queryKey: ["priorities", level, subjectId],
    queryFn: () =>
      read(
        api.GET("/admin/v1/priorities/{level}/{subject_id}", {
          params: { path: { level, subject_id: subjectId ?? "" } },
        }),
      ),
    enabled: subjectId !== undefined,
  });
}

export function PrioritiesOf({ level, subjectId, organizationId }: SubjectProps) {
  const { can, canOperate } = useMyself();
  const title = `Priorities of the ${level}`;
  const writes = level === "organization" ? canOperate("limits.write") : can("limits.write", organizationId);
  const unsaid = UNSAID[level];
  return (
    <RulesOf<PriorityRule>
      noun="priority"
      title={title}
      rules={usePriorities(level, subjectId)}
      writes={writes}
      remove={(tier_name) =>
        read(
          api.DELETE("/admin/v1/priorities/{level}/{subject_id}/{tier_name}", {
            params: { path: { level, subject_id: subjectId, tier_name } },
          }),
        )
      }
      stale={STALE}
      left="The other rules apply within a second."
      list={(rules, change, remove) => (
        <Table
          label={`Priorities ${title.toLowerCase()}`}
          columns={columnsOf(level, unsaid, writes, change, remove)}
          list={rules}
          rowKey={(row) => row.tier ?? "all"}
          empty={
            <Empty title="No priority at this level">
              {level === "organization"
                ? writes
                  ? `It is standard, with a share of ${USUAL_SHARE}. Set another to let it go first, or to let it yield.`
                  : `It is standard, with a share of ${USUAL_SHARE}. The operator of this deployment can change that.`
                : level === "project"
                  ? "Its requests have the organization’s priority. Set offline for requests that can wait."
                  : "Its requests have its project’s priority. Set offline for requests that can wait."}
            </Empty>
          }
        />
      )}
      form={(rule, onClose) => (
        <PriorityForm level={level} subjectId={subjectId} rule={rule} onClose={onClose} />
      )}
    />
  );
}

function columnsOf(
  level: Level,
  unsaid: string,
  writes: boolean,
  change: (rule: PriorityRule) => void,
  remove: (rule: PriorityRule) => void,
): Column<PriorityRule>[] {
  return [
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
              { label: "Change…", onSelect: () => change(row) },
              { label: "Remove…", tone: "bad", onSelect: () => remove(row) },
            ]}
          />
        ),
    },
  ];
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
  const [serviceClass, setServiceClass] = useState<ServiceClass | "">(rule?.service_class ?? "");
  const [text, setText] = useState(rule?.share == null ? "" : String(rule.share));
  const share = shareOf(text);
  return (
    <RuleForm
      title={rule ? `Priority for ${rule.tier ?? "all tiers"}` : "Set a priority"}
      rule={rule}
      put={(tier_name) =>
        read(
          api.PUT("/admin/v1/priorities/{level}/{subject_id}/{tier_name}", {
            params: { path: { level, subject_id: subjectId, tier_name } },
            body: { service_class: serviceClass === "" ? null : serviceClass, share: share ?? null },
          }),
        )
      }
      stale={STALE}
      all="all tiers"
      disabled={share === undefined || (serviceClass === "" && share === null)}
      onClose={onClose}
    >
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
              ? "A weight among organizations: 200 gets twice the tokens of 100 while engines are busy."
              : "A weight among the projects of the organization."
          }
          inputMode="numeric"
          placeholder={String(USUAL_SHARE)}
          error={share === undefined ? `A whole number from 1 to ${count(MOST_SHARE)}.` : null}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
      )}
    </RuleForm>
  );
}
