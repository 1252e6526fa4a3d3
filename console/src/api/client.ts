/** The admin API's client: typed by its OpenAPI document, signed by the session's cookie and its CSRF token. */
import createClient, { type Middleware } from "openapi-fetch";
import { unattended } from "../shell/attention";
import { ApiError } from "./error";
import { isReport, Turns } from "./reports";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

const reports = new Turns(2);
let csrfToken: string | null = null;

/** Every session document brings a new one; requests that change something send it. */
export function keepCsrfToken(token: string | null): void {
  csrfToken = token;
}

export function csrfHeaders(): Record<string, string> {
  return csrfToken === null ? {} : { "X-CSRF-Token": csrfToken };
}

const signed: Middleware = {
  onRequest({ request }) {
    if (request.method === "GET") {
      if (unattended()) request.headers.set("X-Slipstream-Background", "true");
      return;
    }
    if (csrfToken !== null) request.headers.set("X-CSRF-Token", csrfToken);
    if (request.method === "POST") request.headers.set("Idempotency-Key", crypto.randomUUID());
  },
};

// fetch is looked up at every call, so that tests can put theirs in its place
export const api = createClient<paths>({
  baseUrl: "",
  credentials: "same-origin",
  fetch: (request) =>
    isReport(request) ? reports.run(() => globalThis.fetch(request)) : globalThis.fetch(request),
});
api.use(signed);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The answer's body. Raises ApiError for everything that is not a success. */
export async function read<T>(asked: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await asked;
  if (!response.ok) throw ApiError.of(response, error);
  return data as T;
}
