/** A page of a diagnosis: of an organization, or of all of them. */
import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { Filters, SelectFilter } from "../../components/filters";
import { ErrorNotice, Loading } from "../../components/notice";
import { Page } from "../../components/page";
import { TIERS } from "../../shell/choices";
import { LOOKS, type Look, lengthMs } from "../operations/serving/choices";
import { DiagnosisOf, LOOK_NAMES } from "./diagnosis-of";

interface Search {
  look?: Look | undefined;
  tier?: Schemas["Tier"] | undefined;
}

interface DiagnosisPageProps {
  about: string;
  /** Which diagnosis it is. */
  name: string;
  search: Search;
  set: (part: Search) => void;
  ask: (query: { start: string; end: string; tier?: Schemas["Tier"] }) => Promise<Schemas["DiagnosisOf"]>;
}

export function DiagnosisPage({ about, name, search, set, ask }: DiagnosisPageProps) {
  const look = search.look ?? "1h";
  const found = useQuery({
    queryKey: ["diagnosis", name, look, search.tier],
    queryFn: () => {
      // both ends: by the time it is answered, a period up to then would be longer than what may be asked for
      const now = Date.now();
      const [start, end] = [now - lengthMs(look), now].map((at) => new Date(at).toISOString()) as [
        string,
        string,
      ];
      return ask({ start, end, ...(search.tier ? { tier: search.tier } : {}) });
    },
  });
  return (
    <Page title="Diagnosis" about={about}>
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
