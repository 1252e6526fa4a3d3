import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { Confirm } from "../../components/dialog";
import { ActionsMenu } from "../../components/menu";
import { useMyself } from "../../shell/session";
import { Rotate } from "./key-form";

/** Rotate or revoke a key. */
export function KeyActions({ apiKey, organizationId }: { apiKey: Schemas["Key"]; organizationId: string }) {
  const { can } = useMyself();
  const [open, setOpen] = useState<"none" | "rotate" | "revoke">("none");
  const path = { key_id: apiKey.id };
  const revoke = useAction(() => read(api.POST("/admin/v1/keys/{key_id}/revoke", { params: { path } })), {
    done: `${apiKey.name} is revoked: every gateway refuses it within a second.`,
    then: () => setOpen("none"),
  });
  if (!can("keys.write", organizationId) || apiKey.state === "revoked") return null;
  return (
    <>
      <ActionsMenu
        label={`Actions for ${apiKey.name}`}
        actions={[
          { label: "Rotate…", disabled: apiKey.state !== "active", onSelect: () => setOpen("rotate") },
          { label: "Revoke…", tone: "bad", onSelect: () => setOpen("revoke") },
        ]}
      />
      {open === "rotate" && (
        <Rotate
          name={apiKey.name}
          rotate={(body) => read(api.POST("/admin/v1/keys/{key_id}/rotate", { params: { path }, body }))}
          onClose={() => setOpen("none")}
        />
      )}
      {open === "revoke" && (
        <Confirm
          title={`Revoke ${apiKey.name}?`}
          action="Revoke"
          busy={revoke.isPending}
          onConfirm={() => revoke.mutate(undefined)}
          onClose={() => setOpen("none")}
        >
          Every gateway refuses it within a second. This cannot be undone. Its usage records stay.
        </Confirm>
      )}
    </>
  );
}
