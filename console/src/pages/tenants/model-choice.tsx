/** Models by their names: for filters, and for what a project may ask. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../api/client";
import { useFleetModels } from "../../api/fleet-names";
import { readAll, readChoices } from "../../api/list";
import { SelectFilter } from "../../components/filters";
import { useMyself } from "../../shell/session";
import { useProjects } from "./names";

const STALE_MS = 60_000;
const LOOKED_BACK_DAYS = 365;
const DAY_MS = 86_400_000;

/** The fleet's, for who may see it, and those with a price: what a project may be given. Empty until they are known. */
export function useModelNames(): string[] {
  const { can } = useMyself();
  const fleet = useFleetModels();
  const priced = useQuery({
    queryKey: ["prices", "models"],
    staleTime: STALE_MS,
    enabled: can("prices.read"),
    queryFn: () =>
      readChoices((cursor) =>
        read(api.GET("/admin/v1/prices", { params: { query: { limit: 1000, cursor } } })),
      ),
  });
  return namesOf(
    fleet.data?.map((each) => each.name),
    priced.data?.map((each) => each.model),
  );
}

/** Models that were used within a year: by the organization, or by all of them. */
function useUsedModels(organizationId: string | undefined) {
  const { can, canOperate } = useMyself();
  return useQuery({
    queryKey: ["used-models", organizationId ?? "deployment"],
    staleTime: STALE_MS,
    enabled: organizationId ? can("usage.read", organizationId) : canOperate("usage.read"),
    queryFn: () =>
      readAll((cursor) => {
        const today = Math.floor(Date.now() / DAY_MS);
        const start = new Date((today - LOOKED_BACK_DAYS) * DAY_MS).toISOString();
        const query = { limit: 1000, cursor, start, bucket: "all" as const, group_by: ["model" as const] };
        return read(
          organizationId
            ? api.GET("/admin/v1/organizations/{organization_id}/usage", {
                params: { path: { organization_id: organizationId }, query },
              })
            : api.GET("/admin/v1/usage", { params: { query } }),
        );
      }),
  });
}

/** organizationId: whose models there are to choose from; without it those of the deployment. */
export function ModelFilter({
  organizationId,
  value,
  onChange,
}: {
  organizationId?: string | undefined;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
}) {
  const used = useUsedModels(organizationId);
  const fleet = useFleetModels();
  const projects = useProjects(organizationId);
  const names = namesOf(
    used.data?.map((each) => each.model ?? ""),
    fleet.data?.map((each) => each.name),
    projects.data?.flatMap((each) => each.models ?? []),
    value === undefined ? [] : [value],
  );
  return <SelectFilter label="Model" all="All" options={names} value={value} onChange={onChange} />;
}

const namesOf = (...lists: (string[] | undefined)[]): string[] =>
  [...new Set(lists.flatMap((each) => each ?? []))].filter(Boolean).sort();
