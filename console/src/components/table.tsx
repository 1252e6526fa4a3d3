/** Every list of the console: sorted, virtual beyond a hundred rows, with its next pages and as CSV. */
import {
  type ColumnDef,
  createSortedRowModel,
  type RowData,
  rowSortingFeature,
  sortFn_alphanumeric,
  sortFn_basic,
  sortFn_datetime,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useMemo, useRef } from "react";
import type { List } from "../api/list";
import { csv, download } from "../format/csv";
import { count } from "../format/number";
import { Button } from "./button";
import { ErrorNotice, Loading } from "./notice";

export interface Column<Row extends RowData> {
  /** Unique; also the heading in CSV. */
  id: string;
  heading: string;
  /** What is sorted by and written to CSV. */
  value: (row: Row) => string | number | null | undefined;
  /** What is shown; the value unless given. */
  cell?: (row: Row) => ReactNode;
  right?: boolean;
  /** Only the cell: no heading, no order, not in CSV. */
  actions?: boolean;
}

const features = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { alphanumeric: sortFn_alphanumeric, basic: sortFn_basic, datetime: sortFn_datetime },
});

interface TableProps<Row extends RowData> {
  label: string;
  columns: Column<Row>[];
  list: List<Row> | Row[];
  rowKey: (row: Row) => string;
  empty: ReactNode;
  /** The file's name without its ending; no download without. */
  csvName?: string;
  foot?: ReactNode;
}

const ROW_PX = 41;
const VIRTUAL_FROM = 100;

export function Table<Row extends RowData>({
  label,
  columns,
  list,
  rowKey,
  empty,
  csvName,
  foot,
}: TableProps<Row>) {
  const paged = Array.isArray(list) ? null : list;
  const data = Array.isArray(list) ? list : list.rows;
  const defs = useMemo(
    () =>
      columns.map(
        (column): ColumnDef<typeof features, Row> => ({
          id: column.id,
          accessorFn: (row) => column.value(row) ?? "",
          enableSorting: !column.actions,
          sortFn: "basic",
        }),
      ),
    [columns],
  );
  const table = useTable({ features, columns: defs, data, getRowId: rowKey });
  const rows = table.getRowModel().rows;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    enabled: rows.length > VIRTUAL_FROM,
  });
  const items = rows.length > VIRTUAL_FROM ? virtual.getVirtualItems() : null;
  const last = items?.at(-1)?.index ?? -1;
  useEffect(() => {
    if (paged?.hasMore && !paged.loadingMore && items !== null && last >= rows.length - 15) paged.loadMore();
  }, [paged, items, last, rows.length]);

  if (paged?.error) return <ErrorNotice error={paged.error} retry={paged.reload} />;
  if (paged?.loading) return <Loading lines={6} />;
  if (data.length === 0) return <div className="table-frame">{empty}</div>;

  const shown = items === null ? rows : items.flatMap((item) => rows[item.index] ?? []);
  const above = items?.[0]?.start ?? 0;
  const below = items === null ? 0 : virtual.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <div className="table-frame">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is scrolled with the keyboard too */}
      <section className="table-scroll" ref={scroller} aria-label={label} tabIndex={0}>
        <table className="table" aria-rowcount={rows.length + 1}>
          <caption className="visually-hidden">{label}</caption>
          <thead>
            <tr>
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
            {shown.map((row) => (
              <tr key={row.id}>
                {columns.map((column) => (
                  <td
                    key={column.id}
                    className={
                      [column.right ? "to-right" : "", column.actions ? "actions" : ""].join(" ").trim() ||
                      undefined
                    }
                  >
                    {column.cell ? column.cell(row.original) : (column.value(row.original) ?? "–")}
                  </td>
                ))}
              </tr>
            ))}
            <Spacer height={below} columns={columns.length} />
          </tbody>
        </table>
      </section>
      <div className="table-foot">
        <span>
          {foot ??
            `${count(data.length)}${paged?.hasMore ? " loaded, more below" : data.length === 1 ? " row" : " rows"}`}
        </span>
        <span className="row">
          {paged?.hasMore && (
            <Button size="small" busy={paged.loadingMore} onClick={paged.loadMore}>
              Load more
            </Button>
          )}
          {csvName && (
            <Button
              size="small"
              kind="plain"
              icon="download"
              onClick={() => {
                const written = columns.filter((column) => !column.actions);
                download(
                  `${csvName}.csv`,
                  csv(
                    written.map((column) => column.id),
                    rows.map((row) => written.map((column) => column.value(row.original))),
                  ),
                );
              }}
            >
              CSV
            </Button>
          )}
        </span>
      </div>
    </div>
  );
}

function Spacer({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr className="table-spacer">
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}
