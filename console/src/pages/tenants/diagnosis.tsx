import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { api, read } from "../../api/client";
import { Filters, SelectFilter } from "../../components/filters";
import { ErrorNotice, Loading } from "../../components/notice";
import { Page } from "../../components/page";
import { TIERS } from "../../shell/choices";
import { LOOKS, lengthMs } from "../operations/serving/choices";
import { DiagnosisOf, LOOK_NAMES } from "./diagnosis-of";

const route = getRouteApi("/signed/org/$organizationId/diagnosis");

export function Diagnosis() {
  const { organizationId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const look = search.look ?? "1h";
  const found = useQuery({
    queryKey: ["diagnosis", organizationId, look, search.tier],
    queryFn: () => {
      // both ends: by the time it is answered, a period up to then would be longer than what may be asked for
      const now = Date.now();
      const [start, end] = [now - lengthMs(look), now].map((at) => new Date(at).toISOString());
      return read(
        api.GET("/admin/v1/organizations/{organization_id}/diagnosis", {
          params: {
            path: { organization_id: organizationId },
            query: { start, end, ...(search.tier ? { tier: search.tier } : {}) },
          },
        }),
      );
    },
  });
  return (
    <Page
      title="Diagnosis"
      about="What makes your requests slow, from what was measured of them, and what you can change."
    >
      <div className="stack">
        <Filters>
          <SelectFilter
            label="Period"
            all={LOOK_NAMES["1h"]}
            options={LOOKS.filter((each) => each !== "1h")}
            names={LOOK_NAMES}
            value={look === "1h" ? undefined : look}
            onChange={(next) => set({ look: next })}
          />
          <SelectFilter
            label="Tier"
            all="Both"
            options={TIERS}
            value={search.tier}
            onChange={(tier) => set({ tier })}
          />
        </Filters>
        {found.error && <ErrorNotice error={found.error} retry={() => void found.refetch()} />}
        {!found.data && !found.error && <Loading lines={8} />}
        {found.data && <DiagnosisOf found={found.data} />}
      </div>
    </Page>
  );
}
