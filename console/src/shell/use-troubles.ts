/** Fetches the data for `troublesOf`, for operators of the deployment. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../api/client";
import { useMyself } from "./session";
import { allWell, type Trouble, troublesOf } from "./troubles";

const EVERY_MS = 15_000;
const MINUTE_MS = 60_000;

/** Empty for other members, and until the data is there. */
export function useTroubles(): Trouble[] {
  return useTroubleReport().troubles;
}

/** known: a sentence of what was looked at; null until all of it is there. */
export function useTroubleReport(): { troubles: Trouble[]; known: string | null } {
  const { canOperate } = useMyself();
  const fleet = useQuery({
    queryKey: ["troubles", "fleet"],
    enabled: canOperate("fleet.read"),
    refetchInterval: EVERY_MS,
    queryFn: () => read(api.GET("/admin/v1/fleet/live")),
  });
  const slo = useQuery({
    queryKey: ["troubles", "slo"],
    enabled: canOperate("usage.read"),
    refetchInterval: EVERY_MS,
    queryFn: () => read(api.GET("/admin/v1/slo")),
  });
  const recent = useQuery({
    queryKey: ["troubles", "serving"],
    enabled: canOperate("usage.read"),
    refetchInterval: EVERY_MS,
    queryFn: () => {
      const end = Math.floor(Date.now() / MINUTE_MS + 1) * MINUTE_MS;
      const [start, until] = [end - 6 * MINUTE_MS, end].map((at) => new Date(at).toISOString());
      return read(
        api.GET("/admin/v1/serving", {
          params: { query: { start: start as string, end: until as string, bucket: "all" } },
        }),
      );
    },
  });
  const diagnosis = useQuery({
    queryKey: ["troubles", "diagnosis"],
    enabled:
      canOperate("requests.read") && (slo.data?.objectives ?? []).some((each) => each.burning.length > 0),
    refetchInterval: MINUTE_MS,
    queryFn: () => read(api.GET("/admin/v1/diagnosis")),
  });
  return {
    troubles: troublesOf(
      fleet.data,
      slo.data?.objectives ?? [],
      recent.data?.data[0],
      diagnosis.data?.burning,
    ),
    known: fleet.data && slo.data && recent.data ? allWell(fleet.data, recent.data.data[0]) : null,
  };
}
