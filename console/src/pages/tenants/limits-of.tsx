/** One subject's rules and where their counters stand. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { SelectField, TextField } from "../../components/field";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card } from "../../components/page";
import { amount, microOf } from "../../format/money";
import { count, percent } from "../../format/number";
import { TIERS } from "../../shell/choices";
import { type Money, useMoney } from "../../shell/money";
import { useMyself } from "../../shell/session";
import { COUNTERS, type Limits, labelOf } from "./limit-names";

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
  organization: "Of the organization",
  project: "Of the project",
  key: "Of the key",
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
        <Empty title="Not limited here">
          {level === "organization" && !writes
            ? "Whoever runs this deployment sets an organization's limits."
            : level === "organization"
              ? "Set a limit to bound what the organization may use as a whole."
              : "The other rules that concern it hold alone."}
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
                  return (
                    <li key={name}>
                      <span>{labelOf(name)}</span>
                      <span className="number quiet">
                        {used === null ? "" : `${shownLimit(name, used, money)} of `}
                        {shownLimit(name, limit, money)}
                        {share === null ? "" : ` (${percent(share, 0)})`}
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
  const { currency } = useMyself();
  const [tier, setTier] = useState<string>(rule?.tier ?? "all");
  const [texts, setTexts] = useState<Partial<Record<keyof Limits, string>>>(() =>
    Object.fromEntries(
      COUNTERS.filter(({ name }) => rule?.limits[name] != null).map(({ name }) => {
        const value = rule?.limits[name] ?? 0;
        return [name, name === BUDGET ? amount(value).replaceAll(",", "") : String(value)];
      }),
    ),
  );
  const problems: Partial<Record<keyof Limits, string>> = {};
  const body: Limits = {};
  for (const { name } of COUNTERS) {
    const text = texts[name]?.trim() ?? "";
    if (text === "") continue;
    const value = name === BUDGET ? microOf(text) : /^\d{1,15}$/.test(text) ? Number(text) : null;
    if (value === null) problems[name] = name === BUDGET ? "An amount, such as 250.00." : "A whole number.";
    else body[name] = value;
  }
  const save = useAction(() => CALLS[level].put(subjectId, tier, body), {
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
      disabled={Object.keys(problems).length > 0 || Object.keys(body).length === 0}
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
      <div className="grid-2">
        {COUNTERS.map(({ name, label, unit }) => (
          <TextField
            key={name}
            label={`${label} ${unit}`.trim()}
            inputMode="decimal"
            error={problems[name]}
            hint={name === BUDGET ? `In ${currency}.` : undefined}
            value={texts[name] ?? ""}
            onChange={(event) => {
              const value = event.currentTarget.value;
              setTexts((all) => ({ ...all, [name]: value }));
            }}
          />
        ))}
      </div>
    </FormDialog>
  );
}
