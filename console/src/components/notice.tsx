import type { ReactNode } from "react";
import { ApiError, sentenceOf } from "../api/error";
import type { Tone } from "./badge";
import { Button } from "./button";

/** Nothing here yet: why, and what to do about it. */
export function Empty({
  title,
  children,
  action,
}: {
  title: string;
  children?: ReactNode;
  action?: ReactNode;
}) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

export function Notice({ tone, title, children }: { tone?: Tone; title?: string; children?: ReactNode }) {
  return (
    <div className="notice" data-tone={tone} role={tone === "bad" ? "alert" : undefined}>
      {title && <strong>{title}</strong>}
      {children && <div>{children}</div>}
    </div>
  );
}

/** What went wrong, in the API's words, with the request's id, and a way to try again. */
export function ErrorNotice({ error, retry }: { error: unknown; retry?: () => void }) {
  const requestId = error instanceof ApiError ? error.requestId : null;
  return (
    <Notice tone="bad" title="This could not be loaded">
      <p>{sentenceOf(error)}</p>
      {requestId && (
        <p className="quiet small">
          Request <code className="wrap">{requestId}</code>
        </p>
      )}
      {retry && (
        <p>
          <Button size="small" onClick={retry}>
            Try again
          </Button>
        </p>
      )}
    </Notice>
  );
}

/** What an action was refused with, in the API's words, with the request's id to ask an operator about. */
export function Refused({ error }: { error: unknown }) {
  return (
    <Notice tone="bad">
      <p>{sentenceOf(error)}</p>
      {error instanceof ApiError && error.requestId && (
        <p className="quiet small">
          Request <code className="wrap">{error.requestId}</code>
        </p>
      )}
    </Notice>
  );
}

export function Loading({ lines = 5, label = "Loading" }: { lines?: number; label?: string }) {
  return (
    <div className="skeleton" role="status">
      <b className="visually-hidden">{label}</b>
      {Array.from({ length: lines }, (_, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <span key={line} aria-hidden="true" />
      ))}
    </div>
  );
}
