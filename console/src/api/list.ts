/** Lists of the admin API come in pages; these read them one after the other, or all up to a bound. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";

export interface ApiPage<Row> {
  data: Row[];
  has_more: boolean;
  next_cursor: string | null;
}

export interface List<Row> {
  rows: Row[];
  loading: boolean;
  error: unknown;
  hasMore: boolean;
  loadingMore: boolean;
  loadMore: () => void;
  reload: () => void;
  /** Every row from the first page on, beyond what is shown. Raises AbortError once the signal says so. */
  readEvery: (most: number, onRead: (rows: number) => void, signal: AbortSignal) => Promise<Every<Row>>;
}

export interface Every<Row> {
  rows: Row[];
  /** Whether there are more than were asked for. */
  hasMore: boolean;
}

/** A list that grows as one scrolls. fetchPage: asks for one page of at most 100. */
export function useList<Row>(
  key: readonly unknown[],
  fetchPage: (cursor: string | undefined) => Promise<ApiPage<Row>>,
  options: { enabled?: boolean; refetchEveryMs?: number } = {},
): List<Row> {
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam }) => fetchPage(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    enabled: options.enabled ?? true,
    refetchInterval: options.refetchEveryMs ?? false,
  });
  const rows = useMemo(() => query.data?.pages.flatMap((page) => page.data) ?? [], [query.data]);
  return {
    rows,
    loading: query.isPending && (options.enabled ?? true),
    error: query.error,
    hasMore: query.hasNextPage,
    loadingMore: query.isFetchingNextPage,
    loadMore: () => void query.fetchNextPage(),
    reload: () => void query.refetch(),
    readEvery: (most, onRead, signal) => readEvery(fetchPage, most, onRead, signal),
  };
}

/** One page after the other. */
export async function readEvery<Row>(
  fetchPage: (cursor: string | undefined) => Promise<ApiPage<Row>>,
  most: number,
  onRead?: (rows: number) => void,
  signal?: AbortSignal,
): Promise<Every<Row>> {
  const rows: Row[] = [];
  let cursor: string | undefined;
  do {
    signal?.throwIfAborted();
    const page = await fetchPage(cursor);
    rows.push(...page.data);
    onRead?.(rows.length);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && rows.length < most);
  signal?.throwIfAborted();
  return { rows: rows.slice(0, most), hasMore: cursor !== undefined || rows.length > most };
}

/** So many are offered to choose from. */
export const MOST_CHOICES = 5000;

/** Rows to choose from, or to take names from: the first ones where there are more than anybody scrolls through. */
export async function readChoices<Row>(
  fetchPage: (cursor: string | undefined) => Promise<ApiPage<Row>>,
): Promise<Row[]> {
  return (await readEvery(fetchPage, MOST_CHOICES)).rows;
}

/** Every row, for charts and sums. Raises where there are more than `most`. */
export async function readAll<Row>(
  fetchPage: (cursor: string | undefined) => Promise<ApiPage<Row>>,
  most = 5000,
): Promise<Row[]> {
  const { rows, hasMore } = await readEvery(fetchPage, most);
  if (hasMore) throw new Error(`There are more than ${most} rows. Choose a shorter period or fewer groups.`);
  return rows;
}
