/** One subject's limits and where their counters stand. */

import { useQuery } from "@tanstack/react-query";
import { api, read, type Schemas } from "../../api/client";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Empty } from "../../components/notice";
import { count, percent } from "../../format/number";
import { type Money, useMoney } from "../../shell/money";
import { useMyself } from "../../shell/session";
import { LimitFields, useLimitInput } from "./limit-fields";
import { COUNTERS, type Limits, labelOf, monthAtThisPace } from "./limit-names";
import { RuleForm, RulesOf, type SubjectProps } from "./rules-of";

type Level = Schemas["Level"];
type Rule = Schemas["LimitRule"];

const COUNTED_EVERY_MS = 5000;
const BUDGET = "money_micro_per_month";
const STALE = ["limits"];

export function useRules(level: Level, subjectId: string | undefined) {
  return useQuery({
    queryKey: ["limits", level, subjectId],
    queryFn: () =>
      read(
        api.GET("/admin/v1/limits/{level}/{subject_id}", {
          params: { path: { level, subject_id: subjectId ?? "" } },
        }),
      ),
    enabled: subjectId !== undefined,
  });
}

export const putLimits = (level: Level, subject_id: string, tier_name: string, body: Limits) =>
  read(
    api.PUT("/admin/v1/limits/{level}/{subject_id}/{tier_name}", {
      params: { path: { level, subject_id, tier_name } },
      body,
    }),
  );

export function shownLimit(counter: string, value: number | null | undefined, money: Money): string {
  return counter === BUDGET ? money(value) : count(value);
}

export function LimitsOf({ level, subjectId, organizationId }: SubjectProps) {
  const { can, canOperate } = useMyself();
  const money = useMoney();
  const path = { level, subject_id: subjectId };
  const counters = useQuery({
    queryKey: ["limits", level, subjectId, "counters"],
    queryFn: () => read(api.GET("/admin/v1/limits/{level}/{subject_id}/counters", { params: { path } })),
    refetchInterval: COUNTED_EVERY_MS,
  });
  const writes = level === "organization" ? canOperate("limits.write") : can("limits.write", organizationId);
  return (
    <RulesOf<Rule>
      noun="limit"
      title={`Limits of the ${level}`}
      rules={useRules(level, subjectId)}
      writes={writes}
      remove={(tier_name) =>
        read(
          api.DELETE("/admin/v1/limits/{level}/{subject_id}/{tier_name}", {
            params: { path: { ...path, tier_name } },
          }),
        )
      }
      stale={STALE}
      left="Only the other rules then limit requests."
      list={(rules, change, remove) =>
        rules.length === 0 ? (
          <Empty title="No limit at this level">
            {level === "organization" && !writes
              ? "The operator of this deployment sets an organization’s limits."
              : level === "organization"
                ? "Set a limit for the organization as a whole."
                : "Only limits of higher levels apply."}
          </Empty>
        ) : (
          <div className="stack">
            {rules.map((rule) => (
              <div key={rule.tier ?? "all"} className="stack-tight">
                <div className="row-apart">
                  <Badge tone="accent">{rule.tier ?? "all tiers"}</Badge>
                  {writes && (
                    <span className="row">
                      <Button size="small" kind="plain" onClick={() => change(rule)}>
                        Change
                      </Button>
                      <Button size="small" kind="plain" onClick={() => remove(rule)}>
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
                    const tone =
                      share !== null && share >= 1
                        ? "bad"
                        : share !== null && share > 0.8
                          ? "warn"
                          : undefined;
                    return (
                      <li key={name}>
                        <span>{labelOf(name)}</span>
                        <span className="number quiet">
                          {used === null ? "" : `${shownLimit(name, used, money)} of `}
                          {shownLimit(name, limit, money)}
                          {share === null ? "" : ` (${percent(share)})`}
                          {month === null ? "" : `, ${money(month)} by the month’s end at this pace`}
                        </span>
                        <span className="meter" data-tone={tone} aria-hidden="true">
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
                The spend of this budget is still being counted; the shown value may be too low.
              </p>
            )}
          </div>
        )
      }
      form={(rule, onClose) => (
        <LimitForm level={level} subjectId={subjectId} rule={rule} onClose={onClose} />
      )}
    />
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
  const input = useLimitInput(rule?.limits);
  const { limits, problems } = input;
  return (
    <RuleForm
      title={rule ? `Limits for ${rule.tier ?? "all tiers"}` : "Set a limit"}
      rule={rule}
      put={(tier) => putLimits(level, subjectId, tier, limits)}
      stale={STALE}
      all="all tiers together"
      wide
      disabled={Object.keys(problems).length > 0 || Object.keys(limits).length === 0}
      about={<p className="quiet">An empty field sets no limit. Of several rules, the strictest applies.</p>}
      onClose={onClose}
    >
      <LimitFields input={input} />
    </RuleForm>
  );
}
