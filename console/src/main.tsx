import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/error";
import { Toasts } from "./components/toasts";
import { router } from "./router";
import { watchAttention } from "./shell/attention";
import { forgetOthers } from "./shell/forget";
import { moveLink } from "./shell/links";
import { SESSION_KEY } from "./shell/session";
import { followTheme } from "./shell/theme";

const RETRIES = 2;
const BUSY_RETRIES = 5;

/** What failed on the way, and 429: another window of the organization reads reports. */
function again(failed: number, error: Error): boolean {
  if (!(error instanceof ApiError)) return failed < RETRIES;
  return error.status === 429 ? failed < BUSY_RETRIES : error.status >= 500 && failed < RETRIES;
}

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      retry: again,
    },
  },
});

// a session that ended anywhere ends here: the shell then shows the sign-in page
queries.getQueryCache().subscribe((event) => {
  const error = event.query.state.error;
  const ended = error instanceof ApiError && error.status === 401;
  if (
    ended &&
    event.type === "updated" &&
    event.action.type === "error" &&
    event.query.queryKey[0] !== SESSION_KEY[0]
  )
    void queries.invalidateQueries({ queryKey: SESSION_KEY });
});

forgetOthers(queries, SESSION_KEY);
followTheme();
watchAttention(window);
moveLink();
const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <Toasts>
        <RouterProvider router={router} />
      </Toasts>
    </QueryClientProvider>
  </StrictMode>,
);
