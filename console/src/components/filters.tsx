/** Filters of a table. They are search parameters: the page calls `onChange` to put them there. */
import { type ReactNode, useEffect, useState } from "react";
import { SelectField, TextField } from "./field";

export function Filters({ children }: { children: ReactNode }) {
  return (
    <search className="filters" aria-label="Filters">
      {children}
    </search>
  );
}

const SETTLED_MS = 300;

/** Text that counts once somebody has stopped typing. */
export function TextFilter({
  label,
  value,
  onChange,
  placeholder,
  type = "search",
}: {
  label: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
  placeholder?: string;
  type?: string;
}) {
  const [text, setText] = useState(value ?? "");
  useEffect(() => setText(value ?? ""), [value]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new onChange is no new text
  useEffect(() => {
    if (text === (value ?? "")) return;
    const timer = setTimeout(() => onChange(text === "" ? undefined : text), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <TextField
      label={label}
      type={type}
      value={text}
      placeholder={placeholder}
      onChange={(event) => setText(event.currentTarget.value)}
    />
  );
}

export function SelectFilter<Value extends string>({
  label,
  value,
  options,
  all,
  names,
  onChange,
}: {
  label: string;
  value: Value | undefined;
  options: readonly Value[];
  /** What no choice is called; there is always a choice without it. */
  all?: string;
  names?: Partial<Record<Value, string>>;
  onChange: (value: Value | undefined) => void;
}) {
  return (
    <SelectField
      label={label}
      value={value ?? ""}
      onChange={(event) => onChange(options.find((each) => each === event.currentTarget.value))}
    >
      {all !== undefined && <option value="">{all}</option>}
      {options.map((option) => (
        <option key={option} value={option}>
          {names?.[option] ?? option.replaceAll("_", " ")}
        </option>
      ))}
    </SelectField>
  );
}
