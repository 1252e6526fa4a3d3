/** The fleet as the router sees it now. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../../api/client";
import { EVERY_MS } from "../../../api/live";

export const LIVE_FLEET = ["fleet", "live"] as const;

/** Asked again every few seconds: queues, load and breakers are the router's, and news tells of the database only. */
export function useLiveFleet() {
  return useQuery({
    queryKey: LIVE_FLEET,
    refetchInterval: EVERY_MS,
    queryFn: () => read(api.GET("/admin/v1/fleet/live")),
  });
}
