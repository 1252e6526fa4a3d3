import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { FormDialog } from "../../components/dialog";
import { CheckField, ChoiceField, TextField } from "../../components/field";
import { TIERS } from "../../shell/choices";
import { useMyself } from "../../shell/session";
import { useModelNames } from "./model-choice";

type Project = Schemas["Project"];

/** A new project, or changes of one. */
export function ProjectForm({
  organizationId,
  project,
  onClose,
}: {
  organizationId: string;
  project?: Project;
  onClose: () => void;
}) {
  const navigate = useNavigate();
  const { organization } = useMyself();
  const [name, setName] = useState(project?.name ?? "");
  const [models, setModels] = useState<string[] | null>(project?.models ?? null);
  const known = useModelNames();
  const options = [...new Set([...known, ...(project?.models ?? [])])];
  const [tiers, setTiers] = useState<Schemas["Tier"][] | null>(project?.tiers ?? null);
  const [reviews, setReviews] = useState(project?.allow_reviews ?? false);
  const body = { name, models, tiers };
  const save = useAction(
    () =>
      project === undefined
        ? read(
            api.POST("/admin/v1/organizations/{organization_id}/projects", {
              params: { path: { organization_id: organizationId } },
              body,
            }),
          )
        : read(
            api.PATCH("/admin/v1/projects/{project_id}", {
              params: { path: { project_id: project.id } },
              body: { ...body, ...(reviews === project.allow_reviews ? {} : { allow_reviews: reviews }) },
            }),
          ),
    {
      quiet: true,
      done: (made) => (project ? `${made.name} is changed.` : `${made.name} is created. Make its first key.`),
      then: (made) => {
        onClose();
        if (!project) {
          void navigate({
            to: "/org/$organizationId/projects/$projectId",
            params: { organizationId, projectId: made.id },
          });
        }
      },
    },
  );
  return (
    <FormDialog
      title={project ? `Change ${project.name}` : "New project"}
      submit={project ? "Save" : "Make project"}
      disabled={models?.length === 0}
      busy={save.isPending}
      error={save.error}
      onSubmit={() => save.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Name"
        required
        autoFocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <ChoiceField
        legend="Models"
        all="all models, including later ones"
        options={options}
        chosen={models}
        onChange={setModels}
      />
      <ChoiceField legend="Tiers" all="all tiers" options={TIERS} chosen={tiers} onChange={setTiers} />
      {project && organizationId === organization.id && (
        <CheckField
          label="People may review its requests: they compare a candidate's answers with the served ones."
          checked={reviews}
          onChange={(event) => setReviews(event.currentTarget.checked)}
        />
      )}
    </FormDialog>
  );
}
