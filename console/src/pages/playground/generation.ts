/** One call of the public API, streamed, and what is measured of it here. */
import { EventSourceParserStream } from "eventsource-parser/stream";
import { ApiError } from "../../api/error";

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
}

export interface ToolCall {
  name: string;
  arguments: string;
}

export interface Generation {
  text: string;
  toolCalls: ToolCall[];
  finish: string | null;
  requestId: string | null;
  /** What the answer's head tells of: phases until the engine began, by the gateway's clock. */
  phasesMs: Record<string, number>;
  /** Of this browser's clock: from sending to the answer's head. */
  headMs: number | null;
  /** Of this browser's clock: from sending to the first text. */
  ttftMs: number | null;
  elapsedMs: number;
  /** Chunks with text, until the engine's count is known. */
  pieces: number;
  usage: Usage | null;
  running: boolean;
}

export const NOTHING: Generation = {
  text: "",
  toolCalls: [],
  finish: null,
  requestId: null,
  phasesMs: {},
  headMs: null,
  ttftMs: null,
  elapsedMs: 0,
  pieces: 0,
  usage: null,
  running: true,
};

/** The status of a refusal that came inside a stream. */
const STREAMING = 200;

interface Chunk {
  choices?: {
    delta?: {
      content?: string | null;
      tool_calls?: { index: number; function?: { name?: string; arguments?: string } }[];
    };
    text?: string;
    finish_reason?: string | null;
  }[];
  usage?: Usage | null;
  error?: { message?: string; code?: string };
}

/** What a chunk adds. at: milliseconds since the request was sent. Raises ApiError where the chunk is an error. */
export function taken(before: Generation, chunk: Chunk, at: number): Generation {
  if (chunk.error) {
    const { message = "The stream ended with an error.", code = "unknown" } = chunk.error;
    throw new ApiError(message, STREAMING, code, null, before.requestId, null);
  }
  const choice = chunk.choices?.[0];
  const text = choice?.delta?.content ?? choice?.text ?? "";
  const toolCalls = [...before.toolCalls];
  for (const part of choice?.delta?.tool_calls ?? []) {
    const call = toolCalls[part.index] ?? { name: "", arguments: "" };
    toolCalls[part.index] = {
      name: call.name + (part.function?.name ?? ""),
      arguments: call.arguments + (part.function?.arguments ?? ""),
    };
  }
  const came = text !== "" || (choice?.delta?.tool_calls?.length ?? 0) > 0;
  return {
    ...before,
    text: before.text + text,
    toolCalls,
    finish: choice?.finish_reason ?? before.finish,
    ttftMs: before.ttftMs ?? (came ? at : null),
    elapsedMs: at,
    pieces: before.pieces + (came ? 1 : 0),
    usage: chunk.usage ?? before.usage,
  };
}

const LEAST_MS = 20;

/** Output tokens a second after the first; null before there are two, and where all came at once. */
export function tokensPerSecond({ usage, pieces, ttftMs, elapsedMs }: Generation): number | null {
  const tokens = usage?.completion_tokens ?? pieces;
  // tokens that came in one read have no pace
  if (ttftMs === null || tokens < 2 || elapsedMs - ttftMs < LEAST_MS) return null;
  return ((tokens - 1) / (elapsedMs - ttftMs)) * 1000;
}

/** `auth;dur=0.4, engine;dur=12` as milliseconds by name; what is not told so is left out. */
export function timingOf(header: string | null): Record<string, number> {
  const found = [...(header ?? "").matchAll(/([\w-]+);dur=([\d.]+)/g)];
  return Object.fromEntries(found.map(([, name = "", ms]) => [name, Number(ms)]));
}

/** Phases as far as they are known: the head's, and what came behind it by this browser's clock. */
export function phasesSoFar({ phasesMs, headMs, ttftMs, elapsedMs }: Generation): Record<string, number> {
  if (headMs === null || ttftMs === null) return phasesMs;
  return { ...phasesMs, first_token: Math.max(0, ttftMs - headMs), decode: elapsedMs - ttftMs };
}

/** Send it and follow the stream. onChange: with every piece. Raises ApiError where it is refused. */
export async function generate(
  path: string,
  key: string,
  body: unknown,
  signal: AbortSignal,
  onChange: (generation: Generation) => void,
  headers: Record<string, string> = {},
): Promise<Generation> {
  const began = performance.now();
  const response = await fetch(path, {
    method: "POST",
    credentials: "omit",
    headers: { ...headers, Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok || response.body === null) {
    throw ApiError.of(response, await response.json().catch(() => undefined));
  }
  let generation: Generation = {
    ...NOTHING,
    requestId: response.headers.get("x-request-id"),
    phasesMs: timingOf(response.headers.get("server-timing")),
    headMs: performance.now() - began,
  };
  onChange(generation);
  const events = response.body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array<ArrayBuffer>>)
    .pipeThrough(new EventSourceParserStream())
    .getReader();
  for (;;) {
    const { done, value } = await events.read();
    if (done || value.data === "[DONE]") break;
    generation = taken(generation, JSON.parse(value.data) as Chunk, performance.now() - began);
    onChange(generation);
  }
  generation = { ...generation, running: false };
  onChange(generation);
  return generation;
}

/** What became of a completion in the editor, as any editor reports it (docs/concepts/autocomplete-telemetry.md). */
export interface CompletionEvent {
  type: "view" | "select" | "dismiss";
  view_id: string;
  elapsed_ms?: number;
  characters?: number;
}

/** Best effort: who types is not told that a report was lost. */
export async function report(key: string, requestId: string, event: CompletionEvent): Promise<void> {
  await fetch(`/v1/completions/${encodeURIComponent(requestId)}/events`, {
    method: "POST",
    credentials: "omit",
    keepalive: true,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify(event),
  }).catch(() => undefined);
}
