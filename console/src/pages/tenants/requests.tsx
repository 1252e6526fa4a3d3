import { getRouteApi } from "@tanstack/react-router";
import { api, read } from "../../api/client";
import { SelectFilter, TextFilter } from "../../components/filters";
import { useProjects } from "./names";
import { RequestList } from "./request-list";

const route = getRouteApi("/signed/org/$organizationId/requests");

/** Requests of an organization. */
export function Requests() {
  const { organizationId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const projects = useProjects(organizationId);
  return (
    <RequestList
      title="Requests"
      about="The outcome and times of each request, including refused ones. Never its contents."
      byId="By x-request-id or response id."
      search={search}
      set={set}
      anyTime="Any time"
      organizationId={organizationId}
      filtered={{ project_id: search.project_id, key_id: search.key_id }}
      filters={
        <>
          <SelectFilter
            label="Project"
            all="All"
            options={projects.data?.map((each) => each.id) ?? (search.project_id ? [search.project_id] : [])}
            names={Object.fromEntries((projects.data ?? []).map((each) => [each.id, each.name]))}
            value={search.project_id}
            onChange={(project_id) => set({ project_id })}
          />
          <TextFilter label="Key’s id" value={search.key_id} onChange={(key_id) => set({ key_id })} />
        </>
      }
      read={(query) =>
        read(
          api.GET("/admin/v1/organizations/{organization_id}/requests", {
            params: { path: { organization_id: organizationId }, query },
          }),
        )
      }
      place={(requestId) => `/org/${organizationId}/requests/${requestId}`}
      onFind={(requestId) =>
        void navigate({
          to: "/org/$organizationId/requests/$requestId",
          params: { organizationId, requestId },
        })
      }
      empty="Clear the filters. The first request with a key of a project appears here at once."
    />
  );
}
