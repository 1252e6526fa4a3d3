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

/** How the page's tables are sorted (`components/table-sort.ts`): part of every page's address, asked of no API. */
export interface Sorted {
  sort: string | undefined;
}

/** A page's parameters: all may be left out. */
export function searchOf<Read extends object>(
  read: (raw: Raw) => Read,
): (raw: Raw) => Partial<Read & Sorted> {
  return (raw) => {
    const found: Raw = { sort: text(raw, "sort"), ...read(raw) };
    // the router puts what it is given over what the address says: only a name that is given as undefined is gone
    return Object.fromEntries(
      [...Object.keys(raw), ...Object.keys(found)]
        .filter((name) => name in raw || found[name] !== undefined)
        .map((name) => [name, found[name]]),
    ) as Partial<Read & Sorted>;
  };
}

/** What a list is asked with: the page's parameters without its order. */
export function filtersOf<Search extends Partial<Sorted>>(search: Search): Omit<Search, "sort"> {
  const { sort: _, ...filters } = search;
  return filters;
}
