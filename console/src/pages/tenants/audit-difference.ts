/** What a change of the audit log changed, field by field. */
export interface Difference {
  /** With dots: "limits.requests_per_minute". */
  field: string;
  before: unknown;
  after: unknown;
  kind: "added" | "removed" | "changed";
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** In the order of the fields' names. Lists are compared as wholes. */
export function differences(before: unknown, after: unknown, prefix = ""): Difference[] {
  if (isObject(before) || isObject(after)) {
    const old = isObject(before) ? before : {};
    const now = isObject(after) ? after : {};
    return [...new Set([...Object.keys(old), ...Object.keys(now)])]
      .sort()
      .flatMap((name) => differences(old[name], now[name], prefix === "" ? name : `${prefix}.${name}`));
  }
  const empty = (value: unknown) => value === undefined || value === null;
  if (JSON.stringify(before ?? null) === JSON.stringify(after ?? null)) return [];
  return [
    {
      field: prefix === "" ? "value" : prefix,
      before: before ?? null,
      after: after ?? null,
      kind: empty(before) ? "added" : empty(after) ? "removed" : "changed",
    },
  ];
}

export function written(value: unknown): string {
  return value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}
