/** Names of an organization's projects, for rows that hold ids. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../api/client";
import { readChoices } from "../../api/list";

const STALE_MS = 60_000;

/** organizationId: undefined: none, and nothing is asked. */
export function useProjects(organizationId: string | undefined) {
  return useQuery({
    enabled: organizationId !== undefined,
    queryKey: ["projects", organizationId, "all"],
    staleTime: STALE_MS,
    queryFn: () =>
      readChoices((cursor) =>
        read(
          api.GET("/admin/v1/organizations/{organization_id}/projects", {
            params: { path: { organization_id: organizationId ?? "" }, query: { limit: 1000, cursor } },
          }),
        ),
      ),
  });
}
