import { getRouteApi } from "@tanstack/react-router";
import { api, read } from "../../../api/client";
import { useLive } from "../../../api/live";
import { DiagnosisPage } from "../../tenants/diagnosis-page";

const route = getRouteApi("/signed/operations/diagnosis");

export function DeploymentDiagnosis() {
  useLive(["diagnosis"], [["diagnosis"]]);
  const navigate = route.useNavigate();
  return (
    <DiagnosisPage
      about="Why requests of all organizations are slow, from the queue to the client, with evidence."
      name="deployment"
      search={route.useSearch()}
      set={(part) => void navigate({ search: (old) => ({ ...old, ...part }), replace: true })}
      ask={(query) => read(api.GET("/admin/v1/diagnosis", { params: { query } }))}
    />
  );
}
