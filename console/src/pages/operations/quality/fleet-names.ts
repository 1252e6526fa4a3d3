/** What the fleet serves, for forms that name its models and pools. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../../api/client";
import { useMyself } from "../../../shell/session";

export function useFleetModels() {
  const { canOperate } = useMyself();
  return useQuery({
    queryKey: ["fleet-models"],
    queryFn: () => read(api.GET("/admin/v1/models")),
    enabled: canOperate("fleet.read"),
    select: (found) => found.data,
  });
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
