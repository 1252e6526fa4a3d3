/** Every address of the console. Pages are loaded when they are first gone to. */
import { createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { operationsRoutes } from "./pages/operations/routes";
import { LOOKS, SERIES_PERIODS } from "./pages/operations/serving/choices";
import {
  COMPLETION_GROUPS,
  COMPLETION_PERIODS,
  DELIVERY_STATES,
  KEY_STATES,
  PERIODS,
  ROLES,
  TIERS,
  USAGE_FIGURES,
  USAGE_GROUP_CHOICES,
} from "./shell/choices";
import { flag, oneOf, searchOf, text } from "./shell/search";
import { rootRoute, signedRoute } from "./shell/signed-route";

const signIn = createRoute({
  getParentRoute: () => rootRoute,
  path: "/sign-in",
  validateSearch: searchOf((raw) => ({ next: text(raw, "next") })),
  component: lazyRouteComponent(() => import("./pages/entry/sign-in"), "SignIn"),
});
const welcome = createRoute({
  getParentRoute: () => rootRoute,
  path: "/welcome",
  component: lazyRouteComponent(() => import("./pages/entry/welcome"), "Welcome"),
});
const home = createRoute({
  getParentRoute: () => signedRoute,
  path: "/",
  component: lazyRouteComponent(() => import("./pages/tenants/home"), "Home"),
});
const accountPage = createRoute({
  getParentRoute: () => signedRoute,
  path: "/account",
  component: lazyRouteComponent(() => import("./pages/entry/account"), "AccountPage"),
});
const organizations = createRoute({
  getParentRoute: () => signedRoute,
  path: "/organizations",
  validateSearch: searchOf((raw) => ({ name: text(raw, "name"), disabled: flag(raw, "disabled") })),
  component: lazyRouteComponent(() => import("./pages/tenants/organizations"), "Organizations"),
});
const overview = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId",
  component: lazyRouteComponent(() => import("./pages/tenants/overview"), "Overview"),
});
const projects = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/projects",
  validateSearch: searchOf((raw) => ({
    name: text(raw, "name"),
    disabled: flag(raw, "disabled"),
    make: flag(raw, "make"),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/projects"), "Projects"),
});
const projectPage = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/projects/$projectId",
  validateSearch: searchOf((raw) => ({ state: oneOf(raw, "state", KEY_STATES), name: text(raw, "name") })),
  component: lazyRouteComponent(() => import("./pages/tenants/project"), "ProjectPage"),
});
const keyPage = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/projects/$projectId/keys/$keyId",
  component: lazyRouteComponent(() => import("./pages/tenants/key"), "KeyPage"),
});
const members = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/members",
  validateSearch: searchOf((raw) => ({ role: oneOf(raw, "role", ROLES), email: text(raw, "email") })),
  component: lazyRouteComponent(() => import("./pages/tenants/members"), "Members"),
});
const serviceAccounts = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/service-accounts",
  validateSearch: searchOf((raw) => ({ role: oneOf(raw, "role", ROLES), name: text(raw, "name") })),
  component: lazyRouteComponent(() => import("./pages/tenants/service-accounts"), "ServiceAccounts"),
});
const adminKeys = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/admin-keys",
  validateSearch: searchOf((raw) => ({
    state: oneOf(raw, "state", KEY_STATES),
    principal_id: text(raw, "principal_id"),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/admin-keys"), "AdminKeys"),
});
const limitsPage = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/limits",
  validateSearch: searchOf((raw) => ({ project: text(raw, "project"), key: text(raw, "key") })),
  component: lazyRouteComponent(() => import("./pages/tenants/limits"), "LimitsPage"),
});
const priorities = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/priorities",
  validateSearch: searchOf((raw) => ({ project: text(raw, "project"), key: text(raw, "key") })),
  component: lazyRouteComponent(() => import("./pages/tenants/priorities"), "Priorities"),
});
const adapters = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/adapters",
  validateSearch: searchOf((raw) => ({ project_id: text(raw, "project_id"), model: text(raw, "model") })),
  component: lazyRouteComponent(() => import("./pages/tenants/adapters"), "Adapters"),
});
const organizationSettings = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/settings",
  component: lazyRouteComponent(() => import("./pages/tenants/settings"), "OrganizationSettings"),
});
const completions = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/completions",
  validateSearch: searchOf((raw) => ({
    period: oneOf(raw, "period", COMPLETION_PERIODS),
    by: oneOf(raw, "by", COMPLETION_GROUPS),
    project_id: text(raw, "project_id"),
    model: text(raw, "model"),
    language: text(raw, "language"),
    client: text(raw, "client"),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/completions"), "Completions"),
});
const usage = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/usage",
  validateSearch: searchOf((raw) => ({
    period: oneOf(raw, "period", PERIODS),
    by: oneOf(raw, "by", USAGE_GROUP_CHOICES),
    figure: oneOf(raw, "figure", USAGE_FIGURES),
    compare: flag(raw, "compare"),
    project_id: text(raw, "project_id"),
    key_id: text(raw, "key_id"),
    model: text(raw, "model"),
    tier: oneOf(raw, "tier", TIERS),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/usage"), "Usage"),
});
const invoices = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/invoices",
  validateSearch: searchOf((raw) => ({ month: text(raw, "month") })),
  component: lazyRouteComponent(() => import("./pages/tenants/invoices"), "Invoices"),
});
const requests = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/requests",
  validateSearch: searchOf((raw) => ({
    id: text(raw, "id"),
    status: text(raw, "status"),
    error_code: text(raw, "error_code"),
    project_id: text(raw, "project_id"),
    key_id: text(raw, "key_id"),
    model: text(raw, "model"),
    session: text(raw, "session"),
    since: oneOf(raw, "since", LOOKS),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/requests"), "Requests"),
});
const session = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/sessions/$sessionId",
  component: lazyRouteComponent(() => import("./pages/tenants/session"), "SessionPage"),
});
const requestPage = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/requests/$requestId",
  component: lazyRouteComponent(() => import("./pages/tenants/request"), "RequestPage"),
});
const webhooks = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/webhooks",
  component: lazyRouteComponent(() => import("./pages/tenants/webhooks"), "Webhooks"),
});
const webhookPage = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/webhooks/$webhookId",
  validateSearch: searchOf((raw) => ({ state: oneOf(raw, "state", DELIVERY_STATES) })),
  component: lazyRouteComponent(() => import("./pages/tenants/webhook"), "WebhookPage"),
});
const audit = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/audit",
  validateSearch: searchOf((raw) => ({
    action: text(raw, "action"),
    subject_id: text(raw, "subject_id"),
    actor_id: text(raw, "actor_id"),
    since: text(raw, "since"),
    until: text(raw, "until"),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/audit"), "Audit"),
});
const prefixes = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/prefixes",
  validateSearch: searchOf((raw) => ({ model: text(raw, "model"), template: text(raw, "template") })),
  component: lazyRouteComponent(() => import("./pages/tenants/prefixes"), "Prefixes"),
});
const diagnosis = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/diagnosis",
  validateSearch: searchOf((raw) => ({
    look: oneOf(raw, "look", LOOKS),
    tier: oneOf(raw, "tier", TIERS),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/diagnosis"), "Diagnosis"),
});
const objectives = createRoute({
  getParentRoute: () => signedRoute,
  path: "/org/$organizationId/objectives",
  validateSearch: searchOf((raw) => ({
    period: oneOf(raw, "period", SERIES_PERIODS),
    tier: oneOf(raw, "tier", TIERS),
    model: text(raw, "model"),
  })),
  component: lazyRouteComponent(() => import("./pages/tenants/objectives"), "Objectives"),
});
const prices = createRoute({
  getParentRoute: () => signedRoute,
  path: "/prices",
  validateSearch: searchOf((raw) => ({ model: text(raw, "model") })),
  component: lazyRouteComponent(() => import("./pages/tenants/prices"), "Prices"),
});
const chatPlayground = createRoute({
  getParentRoute: () => signedRoute,
  path: "/playground/chat",
  component: lazyRouteComponent(() => import("./pages/playground/chat"), "ChatPlayground"),
});
const autocompletePlayground = createRoute({
  getParentRoute: () => signedRoute,
  path: "/playground/autocomplete",
  component: lazyRouteComponent(() => import("./pages/playground/autocomplete"), "AutocompletePlayground"),
});

const routes = rootRoute.addChildren([
  signIn,
  welcome,
  signedRoute.addChildren([
    home,
    accountPage,
    organizations,
    overview,
    projects,
    projectPage,
    keyPage,
    members,
    serviceAccounts,
    adminKeys,
    limitsPage,
    priorities,
    adapters,
    organizationSettings,
    completions,
    usage,
    invoices,
    requests,
    session,
    requestPage,
    webhooks,
    webhookPage,
    audit,
    prefixes,
    diagnosis,
    objectives,
    prices,
    chatPlayground,
    autocompletePlayground,
    ...operationsRoutes,
  ]),
]);

export const router = createRouter({ routeTree: routes, basepath: "/console", scrollRestoration: true });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
