/** Fields for the counters of a limit, and their values. */
import { useState } from "react";
import { TextField } from "../../components/field";
import { exact, microOf } from "../../format/money";
import { useMyself } from "../../shell/session";
import { COUNTERS, type Counter, type Limits } from "./limit-names";

const BUDGET: Counter = "money_micro_per_month";
type Texts = Partial<Record<Counter, string>>;

export interface LimitInput {
  texts: Texts;
  set: (name: Counter, text: string) => void;
  /** The values for the API, without empty counters. */
  limits: Limits;
  problems: Texts;
}

export function limitsOf(texts: Texts): Pick<LimitInput, "limits" | "problems"> {
  const limits: Limits = {};
  const problems: Texts = {};
  for (const { name } of COUNTERS) {
    const text = texts[name]?.trim() ?? "";
    if (text === "") continue;
    const value = name === BUDGET ? microOf(text) : /^\d{1,15}$/.test(text) ? Number(text) : null;
    if (value === null) problems[name] = name === BUDGET ? "An amount, such as 250.00." : "A whole number.";
    else limits[name] = value;
  }
  return { limits, problems };
}

/** before: the limits to begin with. */
export function useLimitInput(before?: Limits): LimitInput {
  const [texts, setTexts] = useState<Texts>(() =>
    Object.fromEntries(
      COUNTERS.filter(({ name }) => before?.[name] != null).map(({ name }) => {
        const value = before?.[name] ?? 0;
        return [name, name === BUDGET ? exact(value).replaceAll(",", "") : String(value)];
      }),
    ),
  );
  return { texts, set: (name, text) => setTexts((all) => ({ ...all, [name]: text })), ...limitsOf(texts) };
}

/** only: these counters; all unless given. */
export function LimitFields({ input, only }: { input: LimitInput; only?: Counter[] }) {
  const { currency } = useMyself();
  return (
    <div className="grid-2">
      {COUNTERS.filter(({ name }) => only?.includes(name) ?? true).map(({ name, label, unit }) => (
        <TextField
          key={name}
          label={`${label} ${unit}`.trim()}
          inputMode="decimal"
          error={input.problems[name]}
          hint={name === BUDGET ? `In ${currency}.` : undefined}
          value={input.texts[name] ?? ""}
          onChange={(event) => input.set(name, event.currentTarget.value)}
        />
      ))}
    </div>
  );
}
