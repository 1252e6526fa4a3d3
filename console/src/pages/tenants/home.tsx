import { Navigate } from "@tanstack/react-router";
import { useOrganizationId } from "../../shell/shell";

export function Home() {
  return <Navigate to="/org/$organizationId" params={{ organizationId: useOrganizationId() }} replace />;
}
