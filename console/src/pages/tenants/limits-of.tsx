/** One subject's rules and where their counters stand. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField } from "../../components/field";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card } from "../../components/page";
import { count, percent } from "../../format/number";
import { TIERS } from "../../shell/choices";
import { type Money, useMoney } from "../../shell/money";
import { useMyself } from "../../shell/session";
import { LimitFields, useLimitInput } from "./limit-fields";
import { COUNTERS, type Limits, labelOf, monthAtThisPace } from "./limit-names";

type Level = Schemas["Level"];
type Rule = Schemas["LimitRule"];

const CALLS = {
  organization: {
    rules: (id: string) =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/limits", {
          params: { path: { organization_id: id } },
        }),
      ),
    counters: (id: string) =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/limits/counters", {
          params: { path: { organization_id: id } },
        }),
      ),
    put: (id: string, tier_name: string, body: Limits) =>
      read(
        api.PUT("/admin/v1/organizations/{organization_id}/limits/{tier_name}", {
          params: { path: { organization_id: id, tier_name } },
          body,
        }),
      ),
    remove: (id: string, tier_name: string) =>
      read(
        api.DELETE("/admin/v1/organizations/{organization_id}/limits/{tier_name}", {
          params: { path: { organization_id: id, tier_name } },
        }),
      ),
  },
  project: {
    rules: (id: string) =>
      read(api.GET("/admin/v1/projects/{project_id}/limits", { params: { path: { project_id: id } } })),
    counters: (id: string) =>
      read(
        api.GET("/admin/v1/projects/{project_id}/limits/counters", { params: { path: { project_id: id } } }),
      ),
    put: (id: string, tier_name: string, body: Limits) =>
      read(
        api.PUT("/admin/v1/projects/{project_id}/limits/{tier_name}", {
          params: { path: { project_id: id, tier_name } },
          body,
        }),
      ),
    remove: (id: string, tier_name: string) =>
      read(
        api.DELETE("/admin/v1/projects/{project_id}/limits/{tier_name}", {
          params: { path: { project_id: id, tier_name } },
        }),
      ),
  },
  key: {
    rules: (id: string) =>
      read(api.GET("/admin/v1/keys/{key_id}/limits", { params: { path: { key_id: id } } })),
    counters: (id: string) =>
      read(api.GET("/admin/v1/keys/{key_id}/limits/counters", { params: { path: { key_id: id } } })),
    put: (id: string, tier_name: string, body: Limits) =>
      read(
        api.PUT("/admin/v1/keys/{key_id}/limits/{tier_name}", {
          params: { path: { key_id: id, tier_name } },
          body,
        }),
      ),
    remove: (id: string, tier_name: string) =>
      read(
        api.DELETE("/admin/v1/keys/{key_id}/limits/{tier_name}", {
          params: { path: { key_id: id, tier_name } },
        }),
      ),
  },
} satisfies Record<Level, unknown>;

const COUNTED_EVERY_MS = 5000;
const BUDGET = "money_micro_per_month";

export function useRules(level: Level, subjectId: string | undefined) {
  return useQuery({
    queryKey: ["limits", level, subjectId],
    queryFn: () => CALLS[level].rules(subjectId ?? ""),
    enabled: subjectId !== undefined,
  });
}

export function shownLimit(counter: string, value: number | null | undefined, money: Money): string {
  return counter === BUDGET ? money(value) : count(value);
}

const TITLES: Record<Level, string> = {
  organization: "Limits of the organization",
  project: "Limits of the project",
  key: "Limits of the key",
};

export function LimitsOf({
  level,
  subjectId,
  organizationId,
}: {
  level: Level;
  subjectId: string;
  organizationId: string;
}) {
  const { can, canOperate } = useMyself();
  const money = useMoney();
  const rules = useRules(level, subjectId);
  const counters = useQuery({
    queryKey: ["limits", level, subjectId, "counters"],
    queryFn: () => CALLS[level].counters(subjectId),
    refetchInterval: COUNTED_EVERY_MS,
  });
  const [open, setOpen] = useState<{ what: "form" | "remove"; rule: Rule | null } | null>(null);
  const remove = useAction((tier: string) => CALLS[level].remove(subjectId, tier), {
    done: "The rule is removed.",
    then: () => setOpen(null),
  });
  const writes = level === "organization" ? canOperate("limits.write") : can("limits.write", organizationId);
  const add = writes && (
    <Button size="small" icon="plus" onClick={() => setOpen({ what: "form", rule: null })}>
      Set a limit
    </Button>
  );
  return (
    <Card title={TITLES[level]} actions={add}>
      {rules.error ? (
        <ErrorNotice error={rules.error} retry={() => void rules.refetch()} />
      ) : !rules.data ? (
        <Loading lines={3} />
      ) : rules.data.data.length === 0 ? (
        <Empty title="No limit at this level">
          {level === "organization" && !writes
            ? "Whoever runs this deployment sets an organization's limits."
            : level === "organization"
              ? "Set a limit to bound what the organization may use as a whole."
              : "Only limits of the levels above apply."}
        </Empty>
      ) : (
        <div className="stack">
          {rules.data.data.map((rule) => (
            <div key={rule.tier ?? "all"} className="stack-tight">
              <div className="row-apart">
                <Badge tone="accent">{rule.tier ?? "all tiers"}</Badge>
                {writes && (
                  <span className="row">
                    <Button size="small" kind="plain" onClick={() => setOpen({ what: "form", rule })}>
                      Change
                    </Button>
                    <Button size="small" kind="plain" onClick={() => setOpen({ what: "remove", rule })}>
                      Remove
                    </Button>
                  </span>
                )}
              </div>
              <ul className="limit-rows">
                {COUNTERS.filter(({ name }) => rule.limits[name] != null).map(({ name }) => {
                  const limit = rule.limits[name] ?? 0;
                  const now = counters.data?.data.find(
                    (each) => each.counter === name && (each.tier ?? null) === rule.tier,
                  );
                  const used = now ? now.used : null;
                  const share = used === null || limit === 0 ? null : used / limit;
                  const month = name === BUDGET && used !== null ? monthAtThisPace(used) : null;
                  return (
                    <li key={name}>
                      <span>{labelOf(name)}</span>
                      <span className="number quiet">
                        {used === null ? "" : `${shownLimit(name, used, money)} of `}
                        {shownLimit(name, limit, money)}
                        {share === null ? "" : ` (${percent(share)})`}
                        {month === null ? "" : `, ${money(month)} by the month’s end at this pace`}
                      </span>
                      <span
                        className="meter"
                        data-tone={
                          share !== null && share >= 1
                            ? "bad"
                            : share !== null && share > 0.8
                              ? "warn"
                              : undefined
                        }
                        aria-hidden="true"
                      >
                        <i style={{ width: `${Math.min(1, share ?? 0) * 100}%` }} />
                      </span>
                    </li>
                  );
                })}
              </ul>
            </div>
          ))}
          {counters.data && !counters.data.money_counted && (
            <p className="quiet small">
              What the budget has spent is being counted; it may be shown too low.
            </p>
          )}
        </div>
      )}
      {open?.what === "form" && (
        <LimitForm level={level} subjectId={subjectId} rule={open.rule} onClose={() => setOpen(null)} />
      )}
      {open?.what === "remove" && open.rule && (
        <Confirm
          title={`Remove the limit for ${open.rule.tier ?? "all tiers"}?`}
          action="Remove"
          busy={remove.isPending}
          onConfirm={() => remove.mutate(open.rule?.tier ?? "all")}
          onClose={() => setOpen(null)}
        >
          Requests are then limited by the other rules alone.
        </Confirm>
      )}
    </Card>
  );
}

function LimitForm({
  level,
  subjectId,
  rule,
  onClose,
}: {
  level: Level;
  subjectId: string;
  rule: Rule | null;
  onClose: () => void;
}) {
  const [tier, setTier] = useState<string>(rule?.tier ?? "all");
  const input = useLimitInput(rule?.limits);
  const { limits, problems } = input;
  const save = useAction(() => CALLS[level].put(subjectId, tier, limits), {
    quiet: true,
    done: "The limit holds now: gateways follow within a second.",
    then: onClose,
  });
  return (
    <FormDialog
      title={rule ? `Limits for ${rule.tier ?? "all tiers"}` : "Set a limit"}
      submit="Save"
      wide
      busy={save.isPending}
      error={save.error}
      disabled={Object.keys(problems).length > 0 || Object.keys(limits).length === 0}
      onSubmit={() => save.mutate(undefined)}
      onClose={onClose}
    >
      <p className="quiet">
        What is empty is not limited by this rule. Of several rules the strictest holds.
      </p>
      {rule === null && (
        <SelectField label="Tier" value={tier} onChange={(event) => setTier(event.currentTarget.value)}>
          <option value="all">all tiers together</option>
          {TIERS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </SelectField>
      )}
      <LimitFields input={input} />
    </FormDialog>
  );
}
