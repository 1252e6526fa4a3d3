import { Navigate } from "@tanstack/react-router";
import { useMyself } from "../../shell/session";
import { useOrganizationId } from "../../shell/shell";

/** Who runs the deployment begins with it, for their own organization has hardly any traffic; others with theirs. */
export function Home() {
  const { canOperate } = useMyself();
  const organizationId = useOrganizationId();
  return canOperate("usage.read") ? (
    <Navigate to="/operations" replace />
  ) : (
    <Navigate to="/org/$organizationId" params={{ organizationId }} replace />
  );
}
