/** The organization, one of its projects, or one of that project's keys. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../api/client";
import { MOST_CHOICES, readChoices } from "../../api/list";
import { SelectField } from "../../components/field";
import { Filters } from "../../components/filters";
import { useMyself } from "../../shell/session";
import { useProjects } from "./names";

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
  const projects = useProjects(organizationId);
  const keys = useQuery({
    queryKey: ["keys", project, "choice"],
    queryFn: () =>
      readChoices((cursor) =>
        read(
          api.GET("/admin/v1/projects/{project_id}/keys", {
            params: { path: { project_id: project ?? "" }, query: { limit: 100, state: "active", cursor } },
          }),
        ),
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
        {projects.data?.map((each) => (
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
          {keys.data?.map((each) => (
            <option key={each.id} value={each.id}>
              {each.name}
            </option>
          ))}
          {keys.data?.length === MOST_CHOICES && (
            <option disabled>
              These are the first {MOST_CHOICES}; other keys show their limits on their own pages
            </option>
          )}
        </SelectField>
      )}
    </Filters>
  );
}
