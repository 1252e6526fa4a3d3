/** A table's rows as CSV: every one that its filters match, not only what is loaded. */
import type { RowData } from "@tanstack/react-table";
import { useEffect, useRef, useState } from "react";
import type { List } from "../api/list";
import { csv, download } from "../format/csv";
import { count } from "../format/number";
import { Button } from "./button";
import type { Column } from "./table";
import { inOrder, type Order } from "./table-sort";
import { useToasts } from "./toasts";

/** Beyond this a script is better: the API's own pages. */
const MOST_ROWS = 50_000;

interface TableCsvProps<Row extends RowData> {
  /** The file's, without its ending. */
  name: string;
  columns: Column<Row>[];
  list: List<Row> | Row[];
  order: Order | null;
}

export function TableCsv<Row extends RowData>({ name, columns, list, order }: TableCsvProps<Row>) {
  const { say, fail } = useToasts();
  const [read, setRead] = useState<number | null>(null);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);
  const written = columns.filter((column) => !column.actions);
  const save = (rows: Row[], hasMore = false) => {
    const by = written.find((column) => column.id === order?.id);
    const sorted = by && order ? inOrder(rows, by.value, order.desc) : rows;
    download(
      `${name}${hasMore ? ` first ${rows.length} rows` : ""}.csv`,
      csv(
        written.map((column) => column.id),
        sorted.map((row) => written.map((column) => column.value(row))),
      ),
    );
    if (hasMore)
      say(
        `The file has the first ${count(rows.length)} rows. Choose a shorter period or more filters for all.`,
      );
  };
  const begin = async () => {
    if (Array.isArray(list)) return save(list);
    if (!list.hasMore) return save(list.rows);
    const controller = new AbortController();
    abort.current = controller;
    setRead(0);
    try {
      const told = (rows: number) => controller.signal.aborted || setRead(rows);
      const every = await list.readEvery(MOST_ROWS, told, controller.signal);
      save(every.rows, every.hasMore);
      setRead(null);
    } catch (error) {
      if (controller.signal.aborted) return;
      setRead(null);
      fail(error);
    }
  };
  const cancel = () => {
    abort.current?.abort();
    setRead(null);
  };
  if (read !== null) {
    return (
      <>
        <span role="status">Reading rows for CSV: {count(read)}…</span>
        <Button size="small" onClick={cancel}>
          Cancel
        </Button>
      </>
    );
  }
  return (
    <Button size="small" kind="plain" icon="download" onClick={() => void begin()}>
      CSV
    </Button>
  );
}
