/** Phases of a request, one after the other. */
import { milliseconds } from "../../format/number";

/** In the order they happen, which what is stored does not keep. */
const ORDER = ["auth", "limit", "queue", "route", "engine", "first_token", "decode", "stream"];

/** What each is, in a sentence. */
export const PHASES: Record<string, string> = {
  auth: "The request was read, and its key looked up.",
  limit: "Tokens and money were reserved in every rule, or refused.",
  queue: "The request waited for a slot in its pool.",
  route: "The round trip to the router.",
  engine: "The engine queued it and computed its prompt.",
  first_token: "From the engine’s first event to its first text.",
  decode: "The engine generated the other tokens.",
  stream: "The rest: the journal and the last byte to the client.",
};

export function inOrder(names: string[]): string[] {
  const place = (name: string) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return [...names].sort((one, other) => place(one) - place(other));
}

/** explained: with a sentence under each name. */
export function Waterfall({
  phases,
  explained = false,
}: {
  phases: Record<string, number>;
  explained?: boolean;
}) {
  const names = inOrder(Object.keys(phases));
  if (names.length === 0) return <p className="quiet">No phases were measured.</p>;
  const total = names.reduce((sum, name) => sum + (phases[name] ?? 0), 0) || 1;
  let begin = 0;
  return (
    <ol className="waterfall" data-explained={explained || undefined}>
      {names.map((name) => {
        const ms = phases[name] ?? 0;
        const left = (begin / total) * 100;
        begin += ms;
        return (
          <li key={name}>
            <span>
              {name.replaceAll("_", " ")}
              {explained && PHASES[name] && <small className="quiet">{PHASES[name]}</small>}
            </span>
            <span className="waterfall-lane" aria-hidden="true">
              <i style={{ left: `${left}%`, width: `max(${(ms / total) * 100}%, 2px)` }} />
            </span>
            <span className="number">{milliseconds(ms)}</span>
          </li>
        );
      })}
    </ol>
  );
}
