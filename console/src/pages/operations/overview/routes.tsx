/** Operators' pages of the deployment as a whole. */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { TIERS } from "../../../shell/choices";
import { oneOf, searchOf, text } from "../../../shell/search";
import { signedRoute } from "../../../shell/signed-route";
import { LOOKS } from "../serving/choices";
import { OVERVIEW_PERIODS } from "./choices";

const overview = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations",
  validateSearch: searchOf((raw) => ({
    period: oneOf(raw, "period", OVERVIEW_PERIODS),
    tier: oneOf(raw, "tier", TIERS),
    model: text(raw, "model"),
  })),
  component: lazyRouteComponent(() => import("./overview"), "DeploymentOverview"),
});
const requests = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/requests",
  validateSearch: searchOf((raw) => ({
    organization_id: text(raw, "organization_id"),
    status: text(raw, "status"),
    error_code: text(raw, "error_code"),
    tier: oneOf(raw, "tier", TIERS),
    model: text(raw, "model"),
    pool: text(raw, "pool"),
    session: text(raw, "session"),
    since: oneOf(raw, "since", LOOKS),
  })),
  component: lazyRouteComponent(() => import("./requests"), "DeploymentRequests"),
});
const request = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/requests/$requestId",
  component: lazyRouteComponent(() => import("./request"), "RequestAnatomy"),
});

export const overviewRoutes = [overview, requests, request] as const;
