/** Tables as CSV (RFC 4180), for spreadsheets. */

/** Cells that a spreadsheet would take for a formula are led by an apostrophe: names are other people's text. */
function cell(value: unknown): string {
  const text = value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
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
