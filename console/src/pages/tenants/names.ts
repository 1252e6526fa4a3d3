/** Names of an organization's projects and keys, for rows that hold ids. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../api/client";
import { readAll } from "../../api/list";

const STALE_MS = 60_000;
const KEYS_OF_PROJECTS = 20;

export function useProjects(organizationId: string) {
  return useQuery({
    queryKey: ["projects", organizationId, "all"],
    staleTime: STALE_MS,
    queryFn: () =>
      readAll((cursor) =>
        read(
          api.GET("/admin/v1/organizations/{organization_id}/projects", {
            params: { path: { organization_id: organizationId }, query: { limit: 100, cursor } },
          }),
        ),
      ),
  });
}

/** Keys of at most the 20 newest projects, or of one. */
export function useKeys(organizationId: string, projectId: string | undefined, enabled: boolean) {
  const projects = useProjects(organizationId);
  const ids =
    projectId === undefined
      ? (projects.data ?? []).slice(0, KEYS_OF_PROJECTS).map((each) => each.id)
      : [projectId];
  return useQuery({
    queryKey: ["keys", organizationId, "names", ids],
    staleTime: STALE_MS,
    enabled: enabled && ids.length > 0,
    queryFn: async () =>
      (
        await Promise.all(
          ids.map((project_id) =>
            read(
              api.GET("/admin/v1/projects/{project_id}/keys", {
                params: { path: { project_id }, query: { limit: 100 } },
              }),
            ),
          ),
        )
      ).flatMap((page) => page.data),
  });
}
