/** The order of a page's tables as its address says it: `audit-log.at.desc`, several with a comma between. */
import { useNavigate, useRouterState } from "@tanstack/react-router";
import { useMemo } from "react";

export interface Order {
  id: string;
  desc: boolean;
}

/** "Audit log" → "audit-log": which of the page's tables it is. */
export function nameOf(label: string): string {
  return label
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

function partsOf(sort: unknown): string[] {
  return typeof sort === "string" ? sort.split(",").filter((part) => part !== "") : [];
}

/** A table's order; null: as it came. columns: those it can be sorted by; any other is no order. */
export function orderIn(sort: unknown, table: string, columns: string[]): Order | null {
  const part = partsOf(sort).find((each) => each.startsWith(`${table}.`));
  const [, id, direction] = part?.split(".") ?? [];
  if (id === undefined || !columns.includes(id) || (direction !== "asc" && direction !== "desc")) return null;
  return { id, desc: direction === "desc" };
}

/** The same with another order of one table; undefined: nothing is sorted any more. */
export function sortWith(sort: unknown, table: string, order: Order | null): string | undefined {
  const others = partsOf(sort).filter((each) => !each.startsWith(`${table}.`));
  const own = order === null ? [] : [`${table}.${order.id}.${order.desc ? "desc" : "asc"}`];
  return [...others, ...own].join(",") || undefined;
}

export type Value = string | number | null | undefined;

/** Smaller first. */
export function compared(one: Value, other: Value): number {
  if (one === other) return 0;
  return (one ?? "") > (other ?? "") ? 1 : -1;
}

/** In an order; rows without a value come last, whichever way round. */
export function inOrder<Row>(rows: Row[], value: (row: Row) => Value, desc: boolean): Row[] {
  const isNone = (row: Row) => value(row) == null || value(row) === "";
  return [...rows].sort((one, other) => {
    if (isNone(one) || isNone(other)) return Number(isNone(one)) - Number(isNone(other));
    return (desc ? -1 : 1) * compared(value(one), value(other));
  });
}

/** The order of one of the page's tables, and how to choose another. */
export function useOrder(label: string, columns: string[]): [Order | null, (order: Order | null) => void] {
  const table = nameOf(label);
  const sort = useRouterState({ select: (state) => (state.location.search as { sort?: unknown }).sort });
  const navigate = useNavigate();
  const known = columns.join(",");
  const order = useMemo(() => orderIn(sort, table, known.split(",")), [sort, table, known]);
  const choose = (chosen: Order | null) =>
    void navigate({
      to: ".",
      search: ((old: { sort?: unknown }) => ({ ...old, sort: sortWith(old.sort, table, chosen) })) as never,
      replace: true,
      resetScroll: false,
    });
  return [order, choose];
}
