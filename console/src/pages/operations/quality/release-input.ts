/** What somebody types into the form of a release, as the API wants it. Pure. */

/** "shadow, 1, 5, 25, 100" → [0, 0.01, 0.05, 0.25, 1]. A sentence where it is none. */
export function stagesOf(text: string): number[] | string {
  const parts = text
    .split(/[,\s]+/)
    .filter((part) => part !== "")
    .map((part) => (part.toLowerCase() === "shadow" ? 0 : Number(part.replace("%", "")) / 100));
  if (parts.some((share) => !Number.isFinite(share) || share < 0 || share > 1))
    return "Use percentages from 0 to 100, with “shadow” for 0. Example: shadow, 1, 5, 25, 100.";
  if (parts.some((share, at) => at > 0 && share <= (parts[at - 1] ?? 0)))
    return "Each stage must be above the one before.";
  const serving = parts.filter((share) => share > 0 && share < 1);
  if (parts.at(-1) !== 1) return "The last stage must be 100: all traffic.";
  if (serving.length === 0) return "At least one stage between shadow and 100 is needed.";
  if ((serving.at(-1) ?? 0) > 0.5)
    return "The last stage before 100 can be at most 50, because the control arm gets as many sessions.";
  return parts;
}

/** "200, 500" → [200, 500]; "" → null, the judge's own. A sentence where it is none. */
export function leastOf(text: string, stages: number[] | string): number[] | null | string {
  if (text.trim() === "") return null;
  const parts = text
    .split(/[,\s]+/)
    .filter((part) => part !== "")
    .map(Number);
  if (parts.some((units) => !Number.isInteger(units) || units < 1)) return "Whole numbers, at least 1.";
  const serving = Array.isArray(stages)
    ? stages.filter((share) => share > 0 && share < 1).length
    : parts.length;
  return parts.length === serving
    ? parts
    : `One number for each stage between shadow and 100: ${serving}, not ${parts.length}.`;
}

/** Percents as a share between two bounds; "" → undefined. A sentence where it is none. */
export function shareOf(text: string, low: number, high: number): number | undefined | string {
  if (text.trim() === "") return undefined;
  const share = Number(text.replace("%", "")) / 100;
  return Number.isFinite(share) && share >= low && share <= high
    ? share
    : `A percentage from ${low * 100} to ${high * 100}.`;
}

/** A whole number between two bounds; "" → undefined. A sentence where it is none. */
export function wholeOf(text: string, low: number, high: number): number | undefined | string {
  if (text.trim() === "") return undefined;
  const value = Number(text);
  return Number.isInteger(value) && value >= low && value <= high
    ? value
    : `A whole number from ${low} to ${high.toLocaleString("en-US")}.`;
}
