/** What there is to go to, in two modes, and who sees it. */
import type { IconName } from "../components/icon";
import { OPERATIONS } from "../pages/operations/navigation";
import type { Permission } from "./session";

export interface Destination {
  label: string;
  icon: IconName;
  /** Below `/console`; `$organizationId` is the organization that is looked at. */
  to: string;
  needs?: Permission;
  /** For those who run the deployment. */
  operator?: boolean;
  /** Under "More". */
  folded?: boolean;
}

export type Mode = "organization" | "deployment";

const ORGANIZATION = "/org/$organizationId";
const PLAYGROUND: Destination[] = [
  { label: "Chat", icon: "chat", to: "/playground/chat" },
  { label: "Autocomplete", icon: "editor", to: "/playground/autocomplete" },
];
const PRICES: Destination = {
  label: "Prices",
  icon: "price",
  to: "/prices",
  needs: "prices.read",
  folded: true,
};

export const NAVIGATION: Record<Mode, Destination[]> = {
  organization: [
    { label: "Overview", icon: "home", to: ORGANIZATION },
    { label: "Projects", icon: "project", to: `${ORGANIZATION}/projects`, needs: "projects.read" },
    { label: "Usage", icon: "usage", to: `${ORGANIZATION}/usage`, needs: "usage.read" },
    { label: "Invoices", icon: "invoice", to: `${ORGANIZATION}/invoices`, needs: "usage.read" },
    { label: "Requests", icon: "request", to: `${ORGANIZATION}/requests`, needs: "requests.read" },
    { label: "Limits", icon: "limits", to: `${ORGANIZATION}/limits`, needs: "limits.read" },
    { label: "Members", icon: "members", to: `${ORGANIZATION}/members`, needs: "members.read" },
    ...PLAYGROUND,
    ...[
      { label: "Objectives", icon: "slo", to: `${ORGANIZATION}/objectives`, needs: "usage.read" } as const,
      {
        label: "Diagnosis",
        icon: "diagnosis",
        to: `${ORGANIZATION}/diagnosis`,
        needs: "requests.read",
      } as const,
      {
        label: "Completions",
        icon: "editor",
        to: `${ORGANIZATION}/completions`,
        needs: "usage.read",
      } as const,
      {
        label: "Prefix contract",
        icon: "prefix",
        to: `${ORGANIZATION}/prefixes`,
        needs: "usage.read",
      } as const,
      {
        label: "Priorities",
        icon: "updown",
        to: `${ORGANIZATION}/priorities`,
        needs: "limits.read",
      } as const,
      { label: "Adapters", icon: "adapter", to: `${ORGANIZATION}/adapters`, needs: "projects.read" } as const,
      {
        label: "Service accounts",
        icon: "robot",
        to: `${ORGANIZATION}/service-accounts`,
        needs: "members.read",
      } as const,
      {
        label: "Admin keys",
        icon: "key",
        to: `${ORGANIZATION}/admin-keys`,
        needs: "admin_keys.read",
      } as const,
      { label: "Webhooks", icon: "webhook", to: `${ORGANIZATION}/webhooks`, needs: "webhooks.read" } as const,
      { label: "Audit log", icon: "audit", to: `${ORGANIZATION}/audit`, needs: "audit.read" } as const,
      {
        label: "Settings",
        icon: "settings",
        to: `${ORGANIZATION}/settings`,
        needs: "organization.read",
      } as const,
    ].map((each): Destination => ({ ...each, folded: true })),
    PRICES,
  ],
  deployment: [
    ...OPERATIONS.filter((each) => !each.folded),
    {
      label: "Organizations",
      icon: "organization",
      to: "/organizations",
      needs: "organization.read",
      operator: true,
    },
    ...PLAYGROUND,
    ...OPERATIONS.filter((each) => each.folded),
    PRICES,
  ],
};

/** Which mode a page is of; null: of both, such as the playground. */
export function modeOf(place: string): Mode | null {
  if (/^\/(operations|organizations)(\/|$)/.test(place)) return "deployment";
  return place.startsWith("/org/") ? "organization" : null;
}

/** Whether a page is of those who operate the deployment alone. A tenant may read its own requests anywhere. */
export function isOperators(place: string): boolean {
  return /^\/operations(?!\/requests\/.)/.test(place);
}
