/** The card and the form of one subject's rules, which limits and priorities share. */

import type { UseQueryResult } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import type { Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField } from "../../components/field";
import { ErrorNotice, Loading } from "../../components/notice";
import { Card } from "../../components/page";
import { TIERS } from "../../shell/choices";

export interface SubjectProps {
  level: Schemas["Level"];
  subjectId: string;
  organizationId: string;
}

interface AnyRule {
  tier: Schemas["Tier"] | null;
}

interface RulesProps<Rule extends AnyRule> {
  noun: "limit" | "priority";
  title: string;
  rules: UseQueryResult<{ data: Rule[] }>;
  writes: boolean;
  remove: (tier_name: string) => Promise<unknown>;
  /** Which queries a change makes stale. */
  stale: readonly unknown[];
  /** What holds after a rule is removed. */
  left: string;
  list: (rules: Rule[], change: (rule: Rule) => void, remove: (rule: Rule) => void) => ReactNode;
  form: (rule: Rule | null, onClose: () => void) => ReactNode;
}

/** One subject's rules, and the actions on them for a role that may write. */
export function RulesOf<Rule extends AnyRule>(props: RulesProps<Rule>) {
  const { noun, title, rules, writes, stale, left, list, form } = props;
  const [open, setOpen] = useState<{ what: "form" | "remove"; rule: Rule | null } | null>(null);
  const close = () => setOpen(null);
  const remove = useAction(props.remove, { quiet: true, stale, done: "The rule is removed.", then: close });
  return (
    <Card
      title={title}
      actions={
        writes && (
          <Button size="small" icon="plus" onClick={() => setOpen({ what: "form", rule: null })}>
            {`Set a ${noun}`}
          </Button>
        )
      }
    >
      {rules.error ? (
        <ErrorNotice error={rules.error} retry={() => void rules.refetch()} />
      ) : !rules.data ? (
        <Loading lines={3} />
      ) : (
        list(
          rules.data.data,
          (rule) => setOpen({ what: "form", rule }),
          (rule) => setOpen({ what: "remove", rule }),
        )
      )}
      {open?.what === "form" && form(open.rule, close)}
      {open?.what === "remove" && open.rule && (
        <Confirm
          title={`Remove the ${noun} for ${open.rule.tier ?? "all tiers"}?`}
          action="Remove"
          busy={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate(open.rule?.tier ?? "all")}
          onClose={close}
        >
          {left}
        </Confirm>
      )}
    </Card>
  );
}

interface RuleFormProps {
  title: string;
  rule: AnyRule | null;
  put: (tier_name: string) => Promise<unknown>;
  stale: readonly unknown[];
  /** The name of the choice of all tiers. */
  all: string;
  disabled: boolean;
  wide?: boolean;
  about?: ReactNode;
  children: ReactNode;
  onClose: () => void;
}

/** Sets a rule: its tier, chosen where the rule is new, and the fields of its kind. */
export function RuleForm({ rule, put, stale, all, about, children, ...dialog }: RuleFormProps) {
  const [tier, setTier] = useState<string>(rule?.tier ?? "all");
  const save = useAction(() => put(tier), {
    quiet: true,
    stale,
    done: "The rule is set. Gateways apply it within a second.",
    then: dialog.onClose,
  });
  return (
    <FormDialog
      {...dialog}
      submit="Save"
      busy={save.isPending}
      error={save.error}
      onSubmit={() => save.mutate(undefined)}
    >
      {about}
      {rule === null && (
        <SelectField label="Tier" value={tier} onChange={(event) => setTier(event.currentTarget.value)}>
          <option value="all">{all}</option>
          {TIERS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </SelectField>
      )}
      {children}
    </FormDialog>
  );
}
