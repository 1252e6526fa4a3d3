/** The models of a kind that the playground's key opens, and the choice among them. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import type { ComponentProps } from "react";
import { ApiError } from "../../api/error";
import { SelectField } from "../../components/field";
import type { TIERS } from "../../shell/choices";

type Tier = (typeof TIERS)[number];

export interface Served {
  id: string;
  tier: Tier;
  description?: string;
}

/** Their names, as the key may call them. tier: of which kind; all unless told. */
export function namesOf(served: Served[], tier?: Tier): string[] {
  return served.filter((each) => tier === undefined || each.tier === tier).map((each) => each.id);
}

export function useModels(key: string | null, tier?: Tier) {
  return useQuery({ ...served(key), select: (found) => namesOf(found, tier) });
}

/** What a model is and is good for; undefined where nobody has said. */
export function useAbout(key: string | null, model: string) {
  return useQuery({
    ...served(key),
    select: (found) => found.find((each) => each.id === model)?.description,
  }).data;
}

export function useServed(key: string | null) {
  return useQuery(served(key));
}

function served(key: string | null) {
  return queryOptions({
    queryKey: ["playground", "models", key],
    enabled: key !== null,
    retry: false,
    queryFn: async () => {
      const response = await fetch("/v1/models", {
        headers: { Authorization: `Bearer ${key}` },
        credentials: "omit",
      });
      const body = await response.json().catch(() => undefined);
      if (!response.ok) throw ApiError.of(response, body);
      return (body as { data: Served[] }).data;
    },
  });
}

interface ModelFieldProps {
  models: string[] | undefined;
  model: string;
  tier: Tier;
  about?: string | undefined;
  onChange: ComponentProps<"select">["onChange"];
}

export function ModelField({ models, model, tier, about, onChange }: ModelFieldProps) {
  return (
    <SelectField
      label="Model"
      value={model}
      onChange={onChange}
      hint={
        models?.length === 0
          ? `The key gives access to no model for ${tier}. Use a key of a project with access.`
          : (about ?? null)
      }
    >
      {models?.map((each) => <option key={each}>{each}</option>) ?? (
        <option value="">Choose a key first</option>
      )}
    </SelectField>
  );
}
