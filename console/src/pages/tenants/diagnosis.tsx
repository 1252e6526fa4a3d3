import { getRouteApi } from "@tanstack/react-router";
import { api, read } from "../../api/client";
import { DiagnosisPage } from "./diagnosis-page";

const route = getRouteApi("/signed/org/$organizationId/diagnosis");

export function Diagnosis() {
  const { organizationId } = route.useParams();
  const navigate = route.useNavigate();
  const path = { organization_id: organizationId };
  return (
    <DiagnosisPage
      about="Why your requests are slow, from their measurements, and changes that you can make."
      name={organizationId}
      search={route.useSearch()}
      set={(part) => void navigate({ search: (old) => ({ ...old, ...part }), replace: true })}
      ask={(query) =>
        read(api.GET("/admin/v1/organizations/{organization_id}/diagnosis", { params: { path, query } }))
      }
    />
  );
}
