/** The parent of every page that somebody has to be signed in for. */
import { createRootRoute, createRoute, Outlet } from "@tanstack/react-router";
import { NotFound } from "./not-found";
import { Signed } from "./signed";

export const rootRoute = createRootRoute({ component: Outlet, notFoundComponent: NotFound });
export const signedRoute = createRoute({ getParentRoute: () => rootRoute, id: "signed", component: Signed });
