/** The operators' pages, below `/console/operations`. A page, in its group's `routes.tsx`:
 *
 *     const fleet = createRoute({
 *       getParentRoute: () => signedRoute,
 *       path: "/operations/fleet",
 *       validateSearch: searchOf((raw) => ({ pool: text(raw, "pool") })),
 *       component: lazyRouteComponent(() => import("./fleet"), "Fleet"),
 *     });
 */
import { overviewRoutes } from "./overview/routes";
import { qualityRoutes } from "./quality/routes";
import { servingRoutes } from "./serving/routes";

export const operationsRoutes = [...overviewRoutes, ...servingRoutes, ...qualityRoutes] as const;
