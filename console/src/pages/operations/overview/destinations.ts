/** Operators' destinations: the deployment as a whole. */
import type { Destination } from "../../../shell/navigation";

export const OVERVIEW: Destination[] = [
  { label: "Deployment", icon: "home", to: "/operations", needs: "usage.read", operator: true },
  {
    label: "All requests",
    icon: "request",
    to: "/operations/requests",
    needs: "requests.read",
    operator: true,
  },
];
