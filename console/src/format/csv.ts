/** Tables as CSV (RFC 4180), for spreadsheets. */

/** What a spreadsheet would take for a formula is led by an apostrophe: names are other people's text. Where the comma is
 * the decimal mark, cells are cut at semicolons, also before a quote; full-width signs begin formulas too. */
const FORMULA = /(^|[;\t\r\n])([ "]*)(?=[=+\-@\uFF1D\uFF0B\uFF0D\uFF20\t\r])/g;

function cell(value: unknown): string {
  const text = value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const safe = typeof value === "string" ? text.replace(FORMULA, "$1'$2") : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(headings: string[], rows: unknown[][]): string {
  return `${[headings, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** Hand the text to the browser as a file. */
export function download(name: string, text: string, type = "text/csv;charset=utf-8"): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}
