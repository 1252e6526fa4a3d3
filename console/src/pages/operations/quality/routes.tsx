/** Operators' pages of what is served next and how good it is. */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { flag, oneOf, searchOf, text } from "../../../shell/search";
import { signedRoute } from "../../../shell/signed-route";
import { BELOW, EVAL_VIEWS, JOB_STATUSES, MOVED, RELEASE_STATES } from "./choices";

const releases = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/releases",
  validateSearch: searchOf((raw) => ({
    model: text(raw, "model"),
    state: oneOf(raw, "state", RELEASE_STATES),
  })),
  component: lazyRouteComponent(() => import("./releases"), "Releases"),
});
const release = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/releases/$releaseId",
  validateSearch: searchOf((raw) => ({ check: text(raw, "check") })),
  component: lazyRouteComponent(() => import("./release"), "ReleasePage"),
});
const evals = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/evals",
  validateSearch: searchOf((raw) => ({
    view: oneOf(raw, "view", EVAL_VIEWS),
    model: text(raw, "model"),
    status: oneOf(raw, "status", JOB_STATUSES),
    slice: text(raw, "slice"),
  })),
  component: lazyRouteComponent(() => import("./evals"), "Evals"),
});
const evalRun = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/evals/runs/$runId",
  validateSearch: searchOf((raw) => ({ slice: text(raw, "slice"), below: oneOf(raw, "below", BELOW) })),
  component: lazyRouteComponent(() => import("./eval-run"), "EvalRun"),
});
const evalComparison = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/evals/comparisons/$comparisonId",
  validateSearch: searchOf((raw) => ({ slice: text(raw, "slice"), moved: oneOf(raw, "moved", MOVED) })),
  component: lazyRouteComponent(() => import("./eval-comparison"), "EvalComparison"),
});
const reviews = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/reviews",
  validateSearch: searchOf((raw) => ({ model: text(raw, "model"), release: text(raw, "release") })),
  component: lazyRouteComponent(() => import("./reviews"), "Reviews"),
});
const reconciliation = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/reconciliation",
  validateSearch: searchOf((raw) => ({ replica: text(raw, "replica"), drift: flag(raw, "drift") })),
  component: lazyRouteComponent(() => import("./reconciliation"), "Reconciliation"),
});
const changes = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/changes",
  component: lazyRouteComponent(() => import("./changes"), "Changes"),
});
const shadow = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/shadow",
  validateSearch: searchOf((raw) => ({ model: text(raw, "model"), release: text(raw, "release") })),
  component: lazyRouteComponent(() => import("./shadow"), "Shadow"),
});
const cascades = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/cascades",
  component: lazyRouteComponent(() => import("./cascades"), "Cascades"),
});

export const qualityRoutes = [
  releases,
  release,
  evals,
  evalRun,
  evalComparison,
  reviews,
  reconciliation,
  changes,
  shadow,
  cascades,
] as const;
