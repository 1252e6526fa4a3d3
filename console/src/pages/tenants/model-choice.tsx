/** Models by their names: for filters, and for what a project may ask. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../api/client";
import { useFleetModels } from "../../api/fleet-names";
import { readChoices } from "../../api/list";
import { SelectFilter } from "../../components/filters";
import { useMyself } from "../../shell/session";

const STALE_MS = 60_000;

/** The fleet's, for who may see it, and those with a price. Empty until they are known. */
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
  const names = [
    ...(fleet.data ?? []).map((each) => each.name),
    ...(priced.data ?? []).map((each) => each.model),
  ];
  return [...new Set(names)].sort();
}

export function ModelFilter({
  value,
  onChange,
}: {
  value: string | undefined;
  onChange: (value: string | undefined) => void;
}) {
  const names = useModelNames();
  const options = value === undefined || names.includes(value) ? names : [value, ...names];
  return <SelectFilter label="Model" all="All" options={options} value={value} onChange={onChange} />;
}
