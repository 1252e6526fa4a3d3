/** Estimates with their intervals, one beside the other in time's order, and the bound they are held against. */
import { useEffect, useRef, useState } from "react";
import { ChartTable } from "../../../components/chart-table";
import { absolute } from "../../../format/time";

export interface Point {
  key: string;
  /** ISO 8601. */
  at: string;
  value: number;
  lower: number | null;
  upper: number | null;
  /** 1 to 6. */
  series: number;
  /** What it says under the pointer. */
  told: string;
}

interface IntervalChartProps {
  label: string;
  points: Point[];
  /** Lines across: what the values are held against. */
  bounds: { value: number; label: string; quiet?: boolean }[];
  format: (value: number) => string;
  /** Never wider than this. */
  domain: [number, number];
}

const HEIGHT = 168;
const LEFT = 58;
const RIGHT = 12;
const TOP = 14;
const BOTTOM = 24;
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** The least and most of what is drawn, with some air, within the domain. */
export function rangeOf(points: Point[], bounds: number[], domain: [number, number]): [number, number] {
  const drawn = points.flatMap((point) => [
    point.value,
    point.lower ?? point.value,
    point.upper ?? point.value,
  ]);
  const least = Math.min(...drawn, ...bounds);
  const most = Math.max(...drawn, ...bounds);
  const air = Math.max((most - least) * 0.08, 0.005);
  return [Math.max(domain[0], least - air), Math.min(domain[1], most + air)];
}

export function IntervalChart({ label, points, bounds, format, domain }: IntervalChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(360);
  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const measure = () => setWidth(Math.max(element.clientWidth, 160));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const ordered = [...points].sort((one, other) => one.at.localeCompare(other.at));
  const [low, high] = rangeOf(
    ordered,
    bounds.map((bound) => bound.value),
    domain,
  );
  const y = (value: number) => TOP + ((high - value) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
  const step = (width - LEFT - RIGHT) / Math.max(ordered.length, 1);
  const x = (place: number) => LEFT + step * (place + 0.5);
  const first = ordered[0];
  const last = ordered.at(-1);
  return (
    <div ref={frame} className="interval-chart">
      <svg
        viewBox={`0 0 ${width} ${HEIGHT}`}
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={`${label}. The table below has its numbers.`}
      >
        {[low, (low + high) / 2, high].map((value) => (
          <g key={value}>
            <line className="interval-grid" x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
            <text className="interval-tick" x={LEFT - 6} y={y(value) + 4} textAnchor="end">
              {format(value)}
            </text>
          </g>
        ))}
        {ordered.map((point, place) => (
          <g key={point.key} className="interval-point" data-series={point.series}>
            <title>{point.told}</title>
            {point.lower !== null && point.upper !== null && (
              <path
                d={`M${x(place)} ${y(clamp(point.upper, low, high))}V${y(clamp(point.lower, low, high))}M${x(place) - 4} ${y(clamp(point.upper, low, high))}h8M${x(place) - 4} ${y(clamp(point.lower, low, high))}h8`}
              />
            )}
            <circle cx={x(place)} cy={y(point.value)} r={4} />
          </g>
        ))}
        {bounds.map((bound) => (
          <g key={bound.label} className="interval-bound" data-quiet={bound.quiet || undefined}>
            <line x1={LEFT} x2={width - RIGHT} y1={y(bound.value)} y2={y(bound.value)} />
          </g>
        ))}
        {first && (
          <text className="interval-tick" x={x(0)} y={HEIGHT - 6} textAnchor="middle">
            {DAY.format(new Date(first.at))}
          </text>
        )}
        {last && ordered.length > 1 && (
          <text className="interval-tick" x={x(ordered.length - 1)} y={HEIGHT - 6} textAnchor="middle">
            {DAY.format(new Date(last.at))}
          </text>
        )}
      </svg>
      <ul className="legend">
        {bounds
          .filter((bound) => !bound.quiet)
          .map((bound) => (
            <li key={bound.label}>
              <span className="bound-swatch" />
              {bound.label}
            </li>
          ))}
      </ul>
      <ChartTable
        label={label}
        headings={["When", "Value", "Lower", "Upper", "Which"]}
        rows={() =>
          ordered.map((point) => [
            absolute(point.at),
            ...[point.value, point.lower, point.upper].map((value) => (value === null ? "–" : format(value))),
            point.told,
          ])
        }
      />
    </div>
  );
}

const clamp = (value: number, low: number, high: number) => Math.min(high, Math.max(low, value));
