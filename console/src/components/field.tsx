import { type ComponentProps, type ReactNode, useId } from "react";

interface Around {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null | undefined;
}

function describedBy(id: string, hint: unknown, error: unknown): string | undefined {
  return [hint ? `${id}-hint` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ") || undefined;
}

function Frame({ id, label, hint, error, children }: Around & { id: string; children: ReactNode }) {
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children}
      {hint && (
        <span className="field-hint" id={`${id}-hint`}>
          {hint}
        </span>
      )}
      {error && (
        <span className="field-error" id={`${id}-error`} role="alert">
          {error}
        </span>
      )}
    </div>
  );
}

export function TextField({ label, hint, error, ...rest }: Around & ComponentProps<"input">) {
  const id = useId();
  return (
    <Frame id={id} label={label} hint={hint} error={error}>
      <input
        id={id}
        className="input"
        aria-invalid={error ? true : undefined}
        aria-describedby={describedBy(id, hint, error)}
        autoComplete="off"
        {...rest}
      />
    </Frame>
  );
}

export function TextArea({ label, hint, error, ...rest }: Around & ComponentProps<"textarea">) {
  const id = useId();
  return (
    <Frame id={id} label={label} hint={hint} error={error}>
      <textarea
        id={id}
        className="input"
        aria-invalid={error ? true : undefined}
        aria-describedby={describedBy(id, hint, error)}
        {...rest}
      />
    </Frame>
  );
}

export function SelectField({ label, hint, error, children, ...rest }: Around & ComponentProps<"select">) {
  const id = useId();
  return (
    <Frame id={id} label={label} hint={hint} error={error}>
      <select id={id} className="input" aria-describedby={describedBy(id, hint, error)} {...rest}>
        {children}
      </select>
    </Frame>
  );
}

export function CheckField({ label, ...rest }: { label: ReactNode } & ComponentProps<"input">) {
  const id = useId();
  return (
    <span className="check">
      <input id={id} type="checkbox" {...rest} />
      <label htmlFor={id}>{label}</label>
    </span>
  );
}

/** Several of a few. chosen: null means all of them, now and later. */
export function ChoiceField<Value extends string>({
  legend,
  all,
  options,
  chosen,
  onChange,
}: {
  legend: string;
  all: string;
  options: readonly Value[];
  chosen: Value[] | null;
  onChange: (chosen: Value[] | null) => void;
}) {
  return (
    <fieldset className="choice">
      <legend className="field-label">{legend}</legend>
      <div className="checks">
        <CheckField
          label={all}
          checked={chosen === null}
          onChange={(event) => onChange(event.currentTarget.checked ? null : [...options])}
        />
        {options.map((option) => (
          <CheckField
            key={option}
            label={option}
            disabled={chosen === null}
            checked={chosen?.includes(option) ?? true}
            onChange={(event) =>
              onChange(
                event.currentTarget.checked
                  ? [...(chosen ?? []), option]
                  : (chosen ?? []).filter((each) => each !== option),
              )
            }
          />
        ))}
      </div>
    </fieldset>
  );
}
