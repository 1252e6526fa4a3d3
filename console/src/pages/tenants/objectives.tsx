import { getRouteApi } from "@tanstack/react-router";
import { useLive } from "../../api/live";
import { ObjectivesPage, type ObjectivesSearch } from "./objectives-of";

const route = getRouteApi("/signed/org/$organizationId/objectives");

export function Objectives() {
  const { organizationId } = route.useParams();
  useLive(["slo"], [["slo", organizationId]]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<ObjectivesSearch>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  return (
    <ObjectivesPage
      organizationId={organizationId}
      whose="of this organization’s requests"
      search={search}
      onChange={set}
      diagnosis={`/org/${organizationId}/diagnosis`}
    />
  );
}
