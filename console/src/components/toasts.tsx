/** Short messages in the corner. What went wrong stays until it is closed, with the request's id. */
import { createContext, type ReactNode, useCallback, useContext, useMemo, useState } from "react";
import { ApiError, sentenceOf } from "../api/error";
import { IconButton } from "./button";

interface Toast {
  id: number;
  tone: "good" | "bad";
  text: string;
  requestId: string | null;
}

interface Toaster {
  say: (text: string) => void;
  fail: (error: unknown) => void;
}

const ToasterContext = createContext<Toaster | null>(null);
const SHOWN_MS = 6000;

export function useToasts(): Toaster {
  const toaster = useContext(ToasterContext);
  if (toaster === null) throw new Error("useToasts outside of Toasts");
  return toaster;
}

export function Toasts({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const close = useCallback((id: number) => setToasts((all) => all.filter((each) => each.id !== id)), []);
  const toaster = useMemo<Toaster>(() => {
    let next = 0;
    const show = (toast: Omit<Toast, "id">) => {
      next += 1;
      const id = next;
      setToasts((all) => [...all.slice(-3), { ...toast, id }]);
      if (toast.tone === "good") setTimeout(() => close(id), SHOWN_MS);
    };
    return {
      say: (text) => show({ tone: "good", text, requestId: null }),
      fail: (error) =>
        show({
          tone: "bad",
          text: sentenceOf(error),
          requestId: error instanceof ApiError ? error.requestId : null,
        }),
    };
  }, [close]);
  return (
    <ToasterContext value={toaster}>
      {children}
      <section className="toasts" aria-label="Messages">
        {toasts.map((toast) => (
          <div
            key={toast.id}
            className="toast"
            data-tone={toast.tone}
            role={toast.tone === "bad" ? "alert" : "status"}
          >
            <div>
              <p>{toast.text}</p>
              {toast.requestId && (
                <p className="quiet small">
                  Request <code className="wrap">{toast.requestId}</code>
                </p>
              )}
            </div>
            <IconButton icon="close" label="Close message" onClick={() => close(toast.id)} />
          </div>
        ))}
      </section>
    </ToasterContext>
  );
}
