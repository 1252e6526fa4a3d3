/** Requests of all organizations. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read } from "../../../api/client";
import { readAll } from "../../../api/list";
import { SelectFilter, TextFilter } from "../../../components/filters";
import { TIERS } from "../../../shell/choices";
import { RequestList } from "../../tenants/request-list";

const route = getRouteApi("/signed/operations/requests");
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const STALE_MS = 60_000;

function useOrganizationNames() {
  return useQuery({
    queryKey: ["organizations", "names"],
    staleTime: STALE_MS,
    queryFn: async () => {
      const all = await readAll((cursor) =>
        read(api.GET("/admin/v1/organizations", { params: { query: { limit: 1000, cursor } } })),
      );
      return Object.fromEntries(all.map((each) => [each.id, each.name]));
    },
  });
}

export function DeploymentRequests() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const names = useOrganizationNames().data;
  const organization = search.organization_id;
  return (
    <RequestList
      title="All requests"
      about="Requests of all organizations: outcomes and times, never contents."
      byId="By x-request-id or response id, of any age."
      search={search}
      set={set}
      anyTime="Last 24 hours"
      filtered={{
        organization_id: organization && UUID.test(organization) ? organization : undefined,
        tier: search.tier,
        pool: search.pool,
      }}
      filters={
        <>
          <SelectFilter
            label="Organization"
            all="All"
            options={Object.keys(names ?? (organization ? { [organization]: "" } : {}))}
            names={names ?? {}}
            value={organization}
            onChange={(organization_id) => set({ organization_id })}
          />
          <SelectFilter
            label="Tier"
            all="Both"
            options={TIERS}
            value={search.tier}
            onChange={(tier) => set({ tier })}
          />
          <TextFilter label="Pool" value={search.pool} onChange={(pool) => set({ pool })} />
        </>
      }
      read={(query) => read(api.GET("/admin/v1/requests", { params: { query } }))}
      place={(requestId) => `/operations/requests/${requestId}`}
      onFind={(requestId) => void navigate({ to: "/operations/requests/$requestId", params: { requestId } })}
      column={{
        id: "organization",
        heading: "Organization",
        value: (row) => names?.[row.organization_id] ?? row.organization_id,
        cell: (row) => (
          <Link to="/org/$organizationId" params={{ organizationId: row.organization_id }}>
            {names?.[row.organization_id] ?? row.organization_id}
          </Link>
        ),
      }}
      empty="Clear the filters, or look for an older request by its id. To send a first request, make a key in a project."
    />
  );
}
