/** What a chart draws, as a table under it: for who cannot see the chart, or wants the numbers. */
import { useState } from "react";

interface ChartTableProps {
  /** The chart's. */
  label: string;
  headings: string[];
  /** The first cell says which row it is. Made only once somebody asks for it. */
  rows: () => string[][];
}

export function ChartTable({ label, headings, rows }: ChartTableProps) {
  const [open, setOpen] = useState(false);
  return (
    <details className="chart-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary aria-label={`As a table: ${label}`}>As a table</summary>
      {open && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is scrolled with the keyboard too
        <section className="table-scroll" aria-label={`${label}, as a table`} tabIndex={0}>
          <table className="table">
            <caption className="visually-hidden">{label}, as a table</caption>
            <thead>
              <tr>
                {headings.map((heading, place) => (
                  <th key={heading} scope="col" className={place > 0 ? "to-right" : undefined}>
                    <span>{heading}</span>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows().map(([first, ...cells], at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: a row is its moment
                <tr key={at}>
                  <th scope="row">
                    <span>{first}</span>
                  </th>
                  {cells.map((cell, place) => (
                    <td key={headings[place + 1]} className="to-right" data-label={headings[place + 1]}>
                      {cell}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </details>
  );
}
