/** What there is to go to, and who sees it. */
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
}

export interface Section {
  label: string;
  destinations: Destination[];
}

export const NAVIGATION: Section[] = [
  {
    label: "Organization",
    destinations: [
      { label: "Overview", icon: "home", to: "/org/$organizationId" },
      { label: "Projects", icon: "project", to: "/org/$organizationId/projects", needs: "projects.read" },
      { label: "Members", icon: "members", to: "/org/$organizationId/members", needs: "members.read" },
      {
        label: "Service accounts",
        icon: "robot",
        to: "/org/$organizationId/service-accounts",
        needs: "members.read",
      },
      { label: "Admin keys", icon: "key", to: "/org/$organizationId/admin-keys", needs: "admin_keys.read" },
      { label: "Limits", icon: "limits", to: "/org/$organizationId/limits", needs: "limits.read" },
      { label: "Priorities", icon: "updown", to: "/org/$organizationId/priorities", needs: "limits.read" },
      { label: "Adapters", icon: "adapter", to: "/org/$organizationId/adapters", needs: "projects.read" },
      {
        label: "Settings",
        icon: "settings",
        to: "/org/$organizationId/settings",
        needs: "organization.read",
      },
    ],
  },
  {
    label: "Usage and cost",
    destinations: [
      { label: "Usage", icon: "usage", to: "/org/$organizationId/usage", needs: "usage.read" },
      { label: "Completions", icon: "editor", to: "/org/$organizationId/completions", needs: "usage.read" },
      { label: "Invoices", icon: "invoice", to: "/org/$organizationId/invoices", needs: "usage.read" },
      { label: "Prices", icon: "price", to: "/prices", needs: "prices.read" },
    ],
  },
  {
    label: "Activity",
    destinations: [
      { label: "Requests", icon: "request", to: "/org/$organizationId/requests", needs: "requests.read" },
      { label: "Diagnosis", icon: "diagnosis", to: "/org/$organizationId/diagnosis", needs: "requests.read" },
      { label: "Objectives", icon: "slo", to: "/org/$organizationId/objectives", needs: "usage.read" },
      { label: "Prefix contract", icon: "prefix", to: "/org/$organizationId/prefixes", needs: "usage.read" },
      { label: "Webhooks", icon: "webhook", to: "/org/$organizationId/webhooks", needs: "webhooks.read" },
      { label: "Audit log", icon: "audit", to: "/org/$organizationId/audit", needs: "audit.read" },
    ],
  },
  {
    label: "Playground",
    destinations: [
      { label: "Chat", icon: "chat", to: "/playground/chat" },
      { label: "Autocomplete", icon: "editor", to: "/playground/autocomplete" },
    ],
  },
  {
    label: "Operations",
    destinations: [
      {
        label: "Organizations",
        icon: "organization",
        to: "/organizations",
        needs: "organization.read",
        operator: true,
      },
      ...OPERATIONS,
    ],
  },
];
