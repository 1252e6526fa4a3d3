import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { api, read } from "../../api/client";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { TextField } from "../../components/field";
import { ErrorNotice, Loading } from "../../components/notice";
import { Card, Facts, Page } from "../../components/page";
import { FullTime } from "../../components/time";
import { useMyself } from "../../shell/session";
import { useOrganization } from "../../shell/shell";

const route = getRouteApi("/signed/org/$organizationId/settings");

/** What an organization is called, and whether what its people write is kept. */
export function OrganizationSettings() {
  const { organizationId } = route.useParams();
  const myself = useMyself();
  const organization = useOrganization(organizationId);
  const [open, setOpen] = useState<"none" | "name" | "store" | "forget">("none");
  const change = useAction(
    (body: { name?: string; store_prompts?: boolean }) =>
      read(
        api.PATCH("/admin/v1/organizations/{organization_id}", {
          params: { path: { organization_id: organizationId } },
          body,
        }),
      ),
    { quiet: true, done: "Saved.", then: () => setOpen("none") },
  );
  if (organization.error)
    return (
      <Page title="Settings">
        <ErrorNotice error={organization.error} retry={() => void organization.refetch()} />
      </Page>
    );
  if (!organization.data)
    return (
      <Page title="Settings">
        <Loading />
      </Page>
    );
  const found = organization.data;
  const writes = myself.can("organization.write", organizationId);
  const own = myself.organization.id === organizationId;
  return (
    <Page title="Settings" about="Settings of the whole organization.">
      <div className="stack">
        <Card
          title="Organization"
          actions={
            writes && (
              <Button size="small" onClick={() => setOpen("name")}>
                Rename
              </Button>
            )
          }
        >
          <Facts
            facts={[
              ["Name", found.name],
              [
                "Id",
                <code key="id" className="wrap">
                  {found.id}
                </code>,
              ],
              ["Made", <FullTime key="made" at={found.created_at} />],
              [
                "State",
                <Badge key="state" tone={found.disabled_at ? "warn" : "good"}>
                  {found.disabled_at ? "disabled" : "enabled"}
                </Badge>,
              ],
            ]}
          />
        </Card>
        <Card
          title="Kept prompts"
          about="Prompts and responses are not kept unless an owner of the organization turns this on."
          actions={
            writes &&
            (found.store_prompts ? (
              <Button size="small" kind="danger" onClick={() => setOpen("forget")}>
                Turn off
              </Button>
            ) : (
              own && (
                <Button size="small" onClick={() => setOpen("store")}>
                  Turn on
                </Button>
              )
            ))
          }
        >
          <div className="stack-tight">
            <p>
              <Badge tone={found.store_prompts ? "warn" : "good"}>
                {found.store_prompts ? "kept" : "not kept"}
              </Badge>
            </p>
            <p className="quiet">
              {found.store_prompts
                ? "Texts around completions, and the places where prompts first differ, are kept for people of this organization with the right to read prompts. No one else sees them, including the operator of the deployment."
                : own
                  ? "If turned on, members with the right to read prompts can read completions’ texts and the places where prompts first differ."
                  : "Only owners of the organization can turn this on."}
            </p>
          </div>
        </Card>
      </div>
      {open === "name" && (
        <Rename
          name={found.name}
          busy={change.isPending}
          error={change.error}
          onRename={(name) => change.mutate({ name })}
          onClose={() => setOpen("none")}
        />
      )}
      {open === "store" && (
        <Confirm
          title="Keep prompts and responses?"
          action="Keep prompts"
          busy={change.isPending}
          error={change.error}
          onConfirm={() => change.mutate({ store_prompts: true })}
          onClose={() => setOpen("none")}
        >
          From now on texts around completions, and the places where prompts first differ, are kept. Tell
          those who use the organization’s keys. Turning it off deletes them at once.
        </Confirm>
      )}
      {open === "forget" && (
        <Confirm
          title="Delete the kept texts?"
          action="Turn off and delete"
          busy={change.isPending}
          error={change.error}
          onConfirm={() => change.mutate({ store_prompts: false })}
          onClose={() => setOpen("none")}
        >
          All kept texts are deleted at once, and nothing is kept from now on.
        </Confirm>
      )}
    </Page>
  );
}

function Rename({
  name,
  busy,
  error,
  onRename,
  onClose,
}: {
  name: string;
  busy: boolean;
  error: unknown;
  onRename: (name: string) => void;
  onClose: () => void;
}) {
  const [text, setText] = useState(name);
  return (
    <FormDialog
      title="Rename the organization"
      submit="Rename"
      busy={busy}
      error={error}
      disabled={text.trim() === "" || text === name}
      onSubmit={() => onRename(text)}
      onClose={onClose}
    >
      <TextField
        label="Name"
        required
        autoFocus
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
