/** Search parameters of pages: what is there and makes sense is kept, everything else is left out. */
export type Raw = Record<string, unknown>;

export function text(raw: Raw, name: string): string | undefined {
  const value = raw[name];
  return typeof value === "string" && value !== ""
    ? value
    : typeof value === "number"
      ? String(value)
      : undefined;
}

export function oneOf<Value extends string>(
  raw: Raw,
  name: string,
  values: readonly Value[],
): Value | undefined {
  const value = raw[name];
  return values.find((each) => each === value);
}

export function flag(raw: Raw, name: string): boolean | undefined {
  return raw[name] === true || raw[name] === "true" ? true : raw[name] === false ? false : undefined;
}

/** A page's parameters: all may be left out. */
export function searchOf<Read extends object>(read: (raw: Raw) => Read): (raw: Raw) => Partial<Read> {
  return (raw) =>
    Object.fromEntries(Object.entries(read(raw)).filter(([, value]) => value !== undefined)) as Partial<Read>;
}
