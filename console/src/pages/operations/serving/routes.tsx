/** Operators' pages of what serves and how well. */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { TIERS } from "../../../shell/choices";
import { oneOf, searchOf, text } from "../../../shell/search";
import { signedRoute } from "../../../shell/signed-route";
import { LOOKS, SERIES_PERIODS } from "./choices";

const fleet = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/fleet",
  component: lazyRouteComponent(() => import("./fleet"), "Fleet"),
});
// below "pools", so that a pool may be called "versions"
const pool = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/fleet/pools/$pool",
  component: lazyRouteComponent(() => import("./pool"), "PoolPage"),
});
const versions = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/fleet/versions",
  component: lazyRouteComponent(() => import("./fleet-versions"), "FleetVersions"),
});
const version = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/fleet/versions/$version",
  validateSearch: searchOf((raw) => ({ since: text(raw, "since") })),
  component: lazyRouteComponent(() => import("./fleet-version"), "FleetVersion"),
});
const slo = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/slo",
  validateSearch: searchOf((raw) => ({
    period: oneOf(raw, "period", SERIES_PERIODS),
    tier: oneOf(raw, "tier", TIERS),
    model: text(raw, "model"),
  })),
  component: lazyRouteComponent(() => import("./slo"), "Slo"),
});
const diagnosis = createRoute({
  getParentRoute: () => signedRoute,
  path: "/operations/diagnosis",
  validateSearch: searchOf((raw) => ({
    look: oneOf(raw, "look", LOOKS),
    tier: oneOf(raw, "tier", TIERS),
  })),
  component: lazyRouteComponent(() => import("./diagnosis"), "DeploymentDiagnosis"),
});

export const servingRoutes = [fleet, pool, versions, version, slo, diagnosis] as const;
