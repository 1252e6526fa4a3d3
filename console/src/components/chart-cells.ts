/** What a chart says of one moment, under the pointer and in its table. */
export interface Series {
  label: string;
  /** Aligned to `times`; null: nothing known. */
  values: (number | null)[];
  dashed?: boolean;
  /** Drawn in the colour of what is wrong. */
  bad?: boolean;
}

/** "2026-11-24 18:05", with seconds where it has some. */
export function moment(seconds: number): string {
  const at = new Date(seconds * 1000).toISOString().replace("T", " ");
  return at.slice(0, at.slice(17, 19) === "00" ? 16 : 19);
}

/** What each series was at a place; what is not known is no 0. */
export function cellsOf(series: Series[], at: number, format: (value: number) => string): string[] {
  return series.map(({ values }) => {
    const value = values[at];
    return value == null ? "–" : format(value);
  });
}
