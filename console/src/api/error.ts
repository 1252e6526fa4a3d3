/** What the API said no with: OpenAI's error body, and the request's id to ask an operator about. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly param: string | null,
    readonly requestId: string | null,
    readonly retryAfterS: number | null,
  ) {
    super(message);
    this.name = "ApiError";
  }

  /** The same refusal in other words. */
  saying(message: string): ApiError {
    return new ApiError(message, this.status, this.code, this.param, this.requestId, this.retryAfterS);
  }

  static of(response: Response, body: unknown): ApiError {
    const detail = (
      body as { error?: { message?: string; code?: string; param?: string | null } } | undefined
    )?.error;
    const retryAfter = Number(response.headers.get("retry-after"));
    return new ApiError(
      detail?.message ?? `The gateway answered ${response.status} without a reason.`,
      response.status,
      detail?.code ?? "unknown",
      detail?.param ?? null,
      response.headers.get("x-request-id"),
      Number.isFinite(retryAfter) && retryAfter > 0 ? retryAfter : null,
    );
  }
}

/** A sentence for people, of anything that was thrown. */
export function sentenceOf(thrown: unknown): string {
  if (thrown instanceof ApiError) return thrown.message;
  if (thrown instanceof TypeError)
    return "The gateway cannot be reached. Check the connection and try again.";
  return thrown instanceof Error ? thrown.message : String(thrown);
}
