/** The organization, one of its projects, or one of that project's keys. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../api/client";
import { SelectField } from "../../components/field";
import { Filters } from "../../components/filters";
import { useMyself } from "../../shell/session";

export interface Subject {
  project?: string | undefined;
  key?: string | undefined;
}

export function SubjectChoice({
  organizationId,
  project,
  apiKey,
  onChange,
}: {
  organizationId: string;
  project: string | undefined;
  apiKey: string | undefined;
  onChange: (chosen: Subject) => void;
}) {
  const { can } = useMyself();
  const sees = can("keys.read", organizationId);
  const projects = useQuery({
    queryKey: ["projects", organizationId, "choice"],
    queryFn: () =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/projects", {
          params: { path: { organization_id: organizationId }, query: { limit: 100 } },
        }),
      ),
  });
  const keys = useQuery({
    queryKey: ["keys", project, "choice"],
    queryFn: () =>
      read(
        api.GET("/admin/v1/projects/{project_id}/keys", {
          params: { path: { project_id: project ?? "" }, query: { limit: 100, state: "active" } },
        }),
      ),
    enabled: project !== undefined && sees,
  });
  return (
    <Filters>
      <SelectField
        label="Project"
        value={project ?? ""}
        onChange={(event) => onChange({ project: event.currentTarget.value || undefined })}
      >
        <option value="">The organization</option>
        {projects.data?.data.map((each) => (
          <option key={each.id} value={each.id}>
            {each.name}
          </option>
        ))}
      </SelectField>
      {project && sees && (
        <SelectField
          label="Key"
          value={apiKey ?? ""}
          onChange={(event) => onChange({ project, key: event.currentTarget.value || undefined })}
        >
          <option value="">No key</option>
          {keys.data?.data.map((each) => (
            <option key={each.id} value={each.id}>
              {each.name}
            </option>
          ))}
        </SelectField>
      )}
    </Filters>
  );
}
