/** Operators' destinations: what serves and how well. */
import type { Destination } from "../../../shell/navigation";

export const SERVING: Destination[] = [
  { label: "Fleet", icon: "fleet", to: "/operations/fleet", needs: "fleet.read", operator: true },
  { label: "Objectives", icon: "slo", to: "/operations/slo", needs: "usage.read", operator: true },
  {
    label: "Diagnosis",
    icon: "diagnosis",
    to: "/operations/diagnosis",
    needs: "requests.read",
    operator: true,
  },
];
