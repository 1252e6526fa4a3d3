/** The operators' pages, below `/console/operations`. A page:
 *
 *     const fleet = createRoute({
 *       getParentRoute: () => signedRoute,
 *       path: "/operations/fleet",
 *       validateSearch: searchOf((raw) => ({ pool: text(raw, "pool") })),
 *       component: lazyRouteComponent(() => import("./fleet"), "Fleet"),
 *     });
 */
export const operationsRoutes = [] as const;
