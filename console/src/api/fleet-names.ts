/** What the fleet serves, for forms that name its models and pools. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import { useMyself } from "../shell/session";
import { api, read } from "./client";

/** For a page about them, which says so when they cannot be had. */
export const fleetModels = queryOptions({
  queryKey: ["fleet-models"],
  queryFn: () => read(api.GET("/admin/v1/models")),
  select: (found) => found.data,
});

export function useFleetModels() {
  const { canOperate } = useMyself();
  return useQuery({ ...fleetModels, enabled: canOperate("fleet.read") });
}

export function useFleetPools() {
  const { canOperate } = useMyself();
  return useQuery({
    queryKey: ["fleet-pools"],
    queryFn: () => read(api.GET("/admin/v1/pools")),
    enabled: canOperate("fleet.read"),
    select: (found) => found.data,
  });
}
