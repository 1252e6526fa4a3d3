/** Lines or stacked bars over time, drawn by uPlot on a canvas; what they show is also in a table under them. */
import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "../shell/theme";
import { cellsOf, moment, type Series } from "./chart-cells";
import { ChartTable } from "./chart-table";

interface ChartProps {
  label: string;
  /** Seconds since 1970. */
  times: number[];
  series: Series[];
  kind?: "lines" | "bars";
  format: (value: number) => string;
  height?: number;
  /** Nothing between 1 and 2: no step of the y axis is smaller. */
  whole?: boolean;
}

const SERIES_COLOURS = 6;
/** Between two moments below the axis: "04:28:45" and air. */
const TICK_PX = 72;
/** Steps of a y axis of whole numbers: 1, 2, 5, 10, 20, … */
const WHOLE_STEPS = Array.from({ length: 16 }, (_, power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
).flat();

/** Sums from the first series up, so that bars stand on each other. */
export function stack(series: Series[]): (number | null)[][] {
  const sums: number[] = [];
  return series.map(({ values }) =>
    values.map((value, at) => {
      sums[at] = (sums[at] ?? 0) + (value ?? 0);
      return sums[at] ?? 0;
    }),
  );
}

export function Chart({
  label,
  times,
  series,
  kind = "lines",
  format,
  height = 240,
  whole = false,
}: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const key = series.map((each) => `${each.label}${each.dashed ? "~" : ""}`).join("|");
  const data = useMemo(
    () =>
      [times, ...(kind === "bars" ? stack(series) : series.map((each) => each.values))] as uPlot.AlignedData,
    [times, series, kind],
  );
  const plot = useRef<uPlot | null>(null);
  // the text under the pointer has the newest values; the plot is not rebuilt for them
  const newest = useRef({ series, times, format });
  newest.current = { series, times, format };
  // biome-ignore lint/correctness/useExhaustiveDependencies: new values are given to the plot below, without another plot
  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const drawn = series.map((each, place): uPlot.Series => {
      const stroke = colour(each.bad ? "--bad" : `--series-${(place % SERIES_COLOURS) + 1}`);
      return {
        label: each.label,
        stroke,
        width: kind === "bars" ? 0 : 1.75,
        ...(each.dashed ? { dash: [5, 4] } : {}),
        ...(kind === "bars"
          ? {
              fill: stroke,
              paths: uPlot.paths.bars?.({ size: [0.72, 60], radius: 0.08 }) as uPlot.Series.PathBuilder,
            }
          : {}),
        points: { show: false, size: 5, fill: stroke, filter: kind === "bars" ? () => [] : alone },
        value: (_, value) => (value == null ? "–" : format(value)),
      };
    });
    const axis = {
      stroke: colour("--ink-3"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
    };
    const font = `12px ${colour("--sans")}`;
    // the top of the stack is drawn first, or it would cover the rest
    const order = kind === "bars" ? [...drawn.keys()].reverse() : [...drawn.keys()];
    const made = new uPlot(
      {
        width: Math.max(element.clientWidth, 120),
        height,
        series: [{}, ...order.map((place) => drawn[place] as uPlot.Series)],
        axes: [
          { ...axis, font, space: TICK_PX, grid: { show: false }, values: (_, ticks) => labels(ticks) },
          {
            ...axis,
            font,
            size: (_, labels) => axisWidth(labels),
            ...(whole ? { incrs: WHOLE_STEPS } : {}),
            values: (_, ticks) => ticks.map((tick) => format(tick)),
          },
        ],
        scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1] } },
        legend: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
        cursor: { points: { show: false }, drag: { x: false, y: false } },
        hooks: {
          setCursor: [
            (self) => tell(self, element, newest.current.series, newest.current.times, newest.current.format),
          ],
        },
      },
      [data[0], ...order.map((place) => data[place + 1])] as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() =>
      made.setSize({ width: Math.max(element.clientWidth, 120), height }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [key, kind, theme, height, whole]);
  useEffect(() => {
    const rest = data.slice(1);
    if (kind === "bars") rest.reverse();
    plot.current?.setData([data[0], ...rest] as uPlot.AlignedData);
  }, [data, kind]);
  return (
    <figure className="chart">
      <div ref={frame} role="img" aria-label={`${label}. The table below has its numbers.`} />
      <output className="chart-readout small quiet" aria-hidden="true" />
      {series.length > 1 && (
        <ul className="legend">
          {series.map((each, place) => (
            <li key={each.label}>
              <span
                className="swatch"
                data-series={(place % SERIES_COLOURS) + 1}
                data-tone={each.bad ? "bad" : undefined}
              />
              {each.label}
            </li>
          ))}
        </ul>
      )}
      <ChartTable
        label={label}
        headings={["From (UTC)", ...series.map((each) => each.label)]}
        rows={() => times.map((time, at) => [moment(time), ...cellsOf(series, at, format)])}
      />
    </figure>
  );
}

/** Values without a neighbour, which no line would show. */
function alone(plot: uPlot, series: number): number[] {
  const values = plot.data[series] ?? [];
  const found: number[] = [];
  values.forEach((value, at) => {
    if (value != null && values[at - 1] == null && values[at + 1] == null) found.push(at);
  });
  return found;
}

const TICK_DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** Below the axis, each once: parts of a second are not told. */
function labels(ticks: number[]): string[] {
  const told = ticks.map((at) => tick(at, ticks));
  return told.map((label, place) => (label === told[place - 1] ? "" : label));
}

/** A moment below the axis, in UTC: the day at midnight, else the time, with seconds where minutes are too far apart. */
function tick(seconds: number, ticks: number[]): string {
  const at = new Date(seconds * 1000);
  if ((ticks[1] ?? Number.POSITIVE_INFINITY) - (ticks[0] ?? 0) < 60) return at.toISOString().slice(11, 19);
  return at.getUTCHours() === 0 && at.getUTCMinutes() === 0
    ? TICK_DAY.format(at)
    : at.toISOString().slice(11, 16);
}

/** Under the pointer: when, and what each was. */
function tell(
  plot: uPlot,
  element: HTMLElement,
  series: Series[],
  times: number[],
  format: (value: number) => string,
): void {
  const output = element.parentElement?.querySelector("output");
  if (!output) return;
  const at = plot.cursor.idx;
  const time = at == null ? undefined : times[at];
  if (at == null || time === undefined) {
    output.textContent = "";
    return;
  }
  const values = cellsOf(series, at, format).map((cell, place) => `${series[place]?.label}: ${cell}`);
  output.textContent = `${moment(time)} UTC · ${values.join(" · ")}`;
}

const LEAST_AXIS = 56;
const CHARACTER = 7;

/** Width of the y axis in pixels, with room for its longest label. */
export function axisWidth(labels: string[] | null): number {
  return Math.max(LEAST_AXIS, 18 + CHARACTER * Math.max(0, ...(labels ?? []).map((each) => each.length)));
}
