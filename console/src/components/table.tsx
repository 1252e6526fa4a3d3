/** Every list of the console: sorted by its address, virtual beyond a hundred rows, with its next pages and as CSV. */
import {
  type ColumnDef,
  createSortedRowModel,
  type RowData,
  rowSortingFeature,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Fragment, type ReactNode, useEffect, useMemo, useRef } from "react";
import type { List } from "../api/list";
import { count } from "../format/number";
import { Button } from "./button";
import { ErrorNotice, Loading } from "./notice";
import { TableCsv } from "./table-csv";
import { compared, type Order, useOrder, type Value } from "./table-sort";

export interface Column<Row extends RowData> {
  /** Unique; also the heading in CSV. */
  id: string;
  heading: string;
  /** What is sorted by and written to CSV. */
  value: (row: Row) => Value;
  /** What is shown; the value unless given. */
  cell?: (row: Row) => ReactNode;
  right?: boolean;
  /** Only the cell: no heading, no order, not in CSV. */
  actions?: boolean;
  /** Not shown: what cells say in another way, such as a currency. */
  csvOnly?: boolean;
  /** On a phone it stands on the row's first line, beside the first cell: a state. */
  lead?: boolean;
}

const features = tableFeatures({ rowSortingFeature, sortedRowModel: createSortedRowModel() });

interface TableProps<Row extends RowData> {
  /** Of its page's tables this one's alone: its order is under it in the address. */
  label: string;
  columns: Column<Row>[];
  list: List<Row> | Row[];
  rowKey: (row: Row) => string;
  empty: ReactNode;
  /** The file's name without its ending; no download without. */
  csvName?: string;
  foot?: ReactNode;
  /** All rows are there, in sight or not: the page is printed. */
  whole?: boolean;
  /** A line above each run of rows with the same key. */
  group?: { key: (row: Row) => string; head: (row: Row) => ReactNode } | undefined;
}

/** Of a row of one line, until it is measured. */
const ROW_PX = 41;
const VIRTUAL_FROM = 100;
/** Columns that stand closer, so that a window of 1,280 pixels shows all of them. */
const DENSE_FROM = 9;

export function Table<Row extends RowData>({
  label,
  columns: every,
  list,
  rowKey,
  empty,
  csvName,
  foot,
  group,
  whole = false,
}: TableProps<Row>) {
  const columns = useMemo(() => every.filter((column) => !column.csvOnly), [every]);
  const paged = Array.isArray(list) ? null : list;
  const data = Array.isArray(list) ? list : list.rows;
  const defs = useMemo(
    () =>
      columns.map(
        (column): ColumnDef<typeof features, Row> => ({
          id: column.id,
          accessorFn: (row) => {
            const value = column.value(row);
            return value === "" ? undefined : (value ?? undefined);
          },
          enableSorting: !column.actions,
          sortFn: (one, other, id) => compared(one.getValue(id), other.getValue(id)),
          sortUndefined: "last",
        }),
      ),
    [columns],
  );
  const [order, choose] = useOrder(
    label,
    columns.filter((column) => !column.actions).map((column) => column.id),
  );
  const sorting = useMemo(() => (order === null ? [] : [order]), [order]);
  const table = useTable({
    features,
    columns: defs,
    data,
    getRowId: rowKey,
    state: { sorting },
    onSortingChange: (change) => choose((typeof change === "function" ? change(sorting) : change)[0] ?? null),
  });
  const rows = table.getRowModel().rows;
  const isVirtual = !whole && rows.length > VIRTUAL_FROM;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    enabled: isVirtual,
  });
  const items = isVirtual ? virtual.getVirtualItems() : null;
  const last = items?.at(-1)?.index ?? -1;
  useEffect(() => {
    if (paged?.hasMore && !paged.loadingMore && items !== null && last >= rows.length - 15) paged.loadMore();
  }, [paged, items, last, rows.length]);

  if (paged?.error) return <ErrorNotice error={paged.error} retry={paged.reload} />;
  if (paged?.loading) return <Loading lines={6} />;
  if (data.length === 0) return <div className="table-frame">{empty}</div>;

  const shown =
    items === null
      ? rows.map((row, index) => ({ row, index }))
      : items.flatMap(({ index }) => {
          const row = rows[index];
          return row === undefined ? [] : [{ row, index }];
        });
  const above = items?.[0]?.start ?? 0;
  const below = items === null ? 0 : virtual.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <div className="table-frame">
      <section
        className="table-scroll"
        data-virtual={items !== null || undefined}
        ref={scroller}
        aria-label={label}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is scrolled with the keyboard too
        tabIndex={0}
      >
        <table
          className="table"
          data-dense={columns.length >= DENSE_FROM || undefined}
          aria-rowcount={paged?.hasMore ? -1 : rows.length + 1}
        >
          <caption className="visually-hidden">{label}</caption>
          <thead>
            <tr aria-rowindex={1}>
              {columns.map((column) => {
                const sorted = table.getColumn(column.id)?.getIsSorted() ?? false;
                return (
                  <th
                    key={column.id}
                    scope="col"
                    className={column.right ? "to-right" : undefined}
                    aria-sort={sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : undefined}
                  >
                    {column.actions ? (
                      <span>
                        <span className="visually-hidden">Actions</span>
                      </span>
                    ) : (
                      <button type="button" onClick={() => table.getColumn(column.id)?.toggleSorting()}>
                        {column.heading}
                        {sorted && <span aria-hidden="true">{sorted === "asc" ? "↑" : "↓"}</span>}
                      </button>
                    )}
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            <Spacer height={above} columns={columns.length} />
            {shown.map(({ row, index }) => (
              <Fragment key={row.id}>
                {group && !sameGroup(group, rows[index - 1], row) && (
                  <tr className="table-group">
                    <th colSpan={columns.length} scope="rowgroup">
                      <span>{group.head(row.original)}</span>
                    </th>
                  </tr>
                )}
                <tr
                  aria-rowindex={index + 2}
                  data-index={index}
                  ref={items === null ? undefined : virtual.measureElement}
                >
                  {columns.map((column) => (
                    <td
                      key={column.id}
                      className={column.actions ? "actions" : column.right ? "to-right" : undefined}
                      data-label={column.actions || column.lead ? undefined : column.heading}
                      data-lead={column.lead || undefined}
                      data-none={column.value(row.original) == null && !column.actions ? "" : undefined}
                    >
                      {column.cell ? column.cell(row.original) : (column.value(row.original) ?? "–")}
                    </td>
                  ))}
                </tr>
              </Fragment>
            ))}
            <Spacer height={below} columns={columns.length} />
          </tbody>
        </table>
      </section>
      <div className="table-foot">
        <span>{foot ?? footOf(data.length, paged?.hasMore ?? false, order !== null)}</span>
        <span className="row">
          <PhoneOrder columns={columns} order={order} choose={choose} />
          {paged?.hasMore && (
            <Button size="small" busy={paged.loadingMore} onClick={paged.loadMore}>
              Load more
            </Button>
          )}
          {csvName && <TableCsv name={csvName} columns={every} list={list} order={order} />}
        </span>
      </div>
    </div>
  );
}

function sameGroup<Row extends RowData>(
  group: { key: (row: Row) => string },
  one: { original: Row } | undefined,
  other: { original: Row },
): boolean {
  return one !== undefined && group.key(one.original) === group.key(other.original);
}

/** Where the headings have no room: what the rows are sorted by. */
function PhoneOrder<Row extends RowData>({
  columns,
  order,
  choose,
}: {
  columns: Column<Row>[];
  order: Order | null;
  choose: (order: Order | null) => void;
}) {
  const values = columns.filter((column) => !column.actions);
  if (values.length < 2) return null;
  const value = order === null ? "" : `${order.id} ${order.desc ? "desc" : "asc"}`;
  return (
    <select
      className="input phone-order"
      aria-label="Order"
      value={value}
      onChange={(event) => {
        const [id, way] = event.currentTarget.value.split(" ");
        choose(id ? { id, desc: way === "desc" } : null);
      }}
    >
      <option value="">as it came</option>
      {values.map((column) =>
        ["asc", "desc"].map((way) => (
          <option key={way} value={`${column.id} ${way}`}>
            {column.heading} {way === "asc" ? "↑" : "↓"}
          </option>
        )),
      )}
    </select>
  );
}

function footOf(rows: number, hasMore: boolean, sorted: boolean): string {
  if (!hasMore) return `${count(rows)} ${rows === 1 ? "row" : "rows"}`;
  return `${count(rows)} loaded${sorted ? " and sorted" : ""}, more below`;
}

function Spacer({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr className="table-spacer">
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}
