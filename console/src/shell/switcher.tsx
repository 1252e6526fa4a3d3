/** Choose an organization (operators) or a project, by name. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Popover } from "radix-ui";
import { useState } from "react";
import { api, read } from "../api/client";
import { Icon } from "../components/icon";
import { useMyself } from "./session";
import { useOrganization } from "./shell";

export function Switcher({ organizationId }: { organizationId: string }) {
  const [open, setOpen] = useState(false);
  const organization = useOrganization(organizationId);
  const name = organization.data?.name ?? "…";
  return (
    <Popover.Root open={open} onOpenChange={setOpen}>
      <Popover.Trigger asChild>
        <button type="button" className="switcher">
          <span className="switcher-mark" aria-hidden="true">
            {name.slice(0, 1).toUpperCase()}
          </span>
          <span>
            <b>{name}</b>
            <small>{organization.data?.operator ? "operates this deployment" : "organization"}</small>
            <span className="visually-hidden">Switch organization or project</span>
          </span>
          <Icon name="updown" />
        </button>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          className="menu"
          align="start"
          sideOffset={5}
          aria-label="Organizations and projects"
        >
          <Choices organizationId={organizationId} onChosen={() => setOpen(false)} />
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}

function Choices({ organizationId, onChosen }: { organizationId: string; onChosen: () => void }) {
  const { operator } = useMyself();
  const [name, setName] = useState("");
  const query = name.trim() === "" ? {} : { name: name.trim() };
  const organizations = useQuery({
    queryKey: ["organizations", "switcher", query],
    queryFn: () => read(api.GET("/admin/v1/organizations", { params: { query: { limit: 20, ...query } } })),
    enabled: operator,
  });
  const projects = useQuery({
    queryKey: ["projects", organizationId, "switcher", query],
    queryFn: () =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/projects", {
          params: { path: { organization_id: organizationId }, query: { limit: 20, ...query } },
        }),
      ),
  });
  return (
    <>
      <input
        className="input"
        placeholder="Find by name"
        aria-label="Find by name"
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <p className="menu-label">Projects</p>
      {projects.data?.data.map((project) => (
        <Link
          key={project.id}
          className="menu-item"
          to="/org/$organizationId/projects/$projectId"
          params={{ organizationId, projectId: project.id }}
          onClick={onChosen}
        >
          {project.name}
        </Link>
      ))}
      {projects.data?.data.length === 0 && <p className="menu-label">No matches.</p>}
      {operator && (
        <>
          <p className="menu-label">Organizations</p>
          {organizations.data?.data.map((each) => (
            <Link
              key={each.id}
              className="menu-item"
              to="/org/$organizationId"
              params={{ organizationId: each.id }}
              onClick={onChosen}
            >
              {each.name}
              {each.id === organizationId && <Icon name="check" />}
            </Link>
          ))}
          {organizations.data?.data.length === 0 && <p className="menu-label">No matches.</p>}
        </>
      )}
    </>
  );
}
