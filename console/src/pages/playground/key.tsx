/** The key that the playground sends: pasted, or made for an hour. It stays in memory and goes with the page. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, read } from "../../api/client";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { CopyButton } from "../../components/copy";
import { SelectField, TextField } from "../../components/field";
import { Refused } from "../../components/notice";
import { Card } from "../../components/page";
import { useMyself } from "../../shell/session";
import { useOrganization, useOrganizationId } from "../../shell/shell";
import { useProjects } from "../tenants/names";
import { useModels } from "./models";

const KEY = ["playground", "key"] as const;
const LIFE_MS = 3_600_000;

export function usePlaygroundKey(): string | null {
  const kept = useQuery<string | null>({
    queryKey: KEY,
    queryFn: () => null,
    enabled: false,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
  });
  return kept.data ?? null;
}

export function KeyCard() {
  const key = usePlaygroundKey();
  const queries = useQueryClient();
  const organizationId = useOrganizationId();
  const { can } = useMyself();
  const organization = useOrganization(organizationId);
  const projects = useProjects(organizationId);
  const [pasted, setPasted] = useState("");
  const [project, setProject] = useState("");
  const models = useModels(key);
  const put = (value: string | null) => queries.setQueryData(KEY, value);
  const enabled = (projects.data ?? []).filter((each) => !each.disabled_at);
  const chosen = project || enabled[0]?.id;
  const first = projects.data?.length === 0 && can("projects.write", organizationId);
  const make = useAction(
    async () => {
      const project_id =
        chosen ??
        (
          await read(
            api.POST("/admin/v1/organizations/{organization_id}/projects", {
              params: { path: { organization_id: organizationId } },
              body: { name: "playground" },
            }),
          )
        ).id;
      return read(
        api.POST("/admin/v1/projects/{project_id}/keys", {
          params: { path: { project_id } },
          body: { name: "playground", expires_at: new Date(Date.now() + LIFE_MS).toISOString() },
        }),
      );
    },
    { done: "The key expires in an hour. Its usage is the project’s.", then: (made) => put(made.secret) },
  );
  if (key !== null) {
    return (
      <Card>
        <div className="row-apart">
          <span className="row">
            <Badge tone="good">key</Badge> <code>{key.slice(0, 14)}…</code>
          </span>
          <span className="row">
            <CopyButton text={key} label="Copy the key" />
            <Button size="small" onClick={() => put(null)}>
              Use another key
            </Button>
          </span>
        </div>
        {models.error && <Refused error={models.error} />}
      </Card>
    );
  }
  return (
    <Card
      title="A key for the playground"
      about="The key is kept in memory only: reloading the page forgets it."
    >
      <div className="grid-2">
        {can("keys.write", organizationId) && (
          <form
            className="stack-tight"
            onSubmit={(event) => {
              event.preventDefault();
              if (chosen || first) make.mutate(undefined);
            }}
          >
            {first ? (
              <p>
                Keys belong to a project, and {organization.data?.name ?? "this organization"} has none. This
                makes the project “playground” and a key that expires in an hour.
              </p>
            ) : (
              <SelectField
                label="Make a key that expires in an hour, in"
                hint={projects.data && !chosen ? "Keys belong to a project, and none here is enabled." : null}
                value={chosen ?? ""}
                onChange={(event) => setProject(event.currentTarget.value)}
              >
                {enabled.map((each) => (
                  <option key={each.id} value={each.id}>
                    {each.name}
                  </option>
                ))}
              </SelectField>
            )}
            <div>
              <Button type="submit" kind="primary" disabled={!(chosen || first)} busy={make.isPending}>
                {first ? "Make a project and a key" : "Make a key"}
              </Button>
            </div>
          </form>
        )}
        <form
          className="stack-tight"
          onSubmit={(event) => {
            event.preventDefault();
            if (pasted.trim() !== "") put(pasted.trim());
          }}
        >
          <TextField
            label="Or use a key you have"
            type="password"
            placeholder="sk-slip-…"
            value={pasted}
            onChange={(event) => setPasted(event.currentTarget.value)}
          />
          <div>
            <Button type="submit">Use it</Button>
          </div>
        </form>
      </div>
    </Card>
  );
}
