/** A change of a release by hand: it says what happens, and wants a reason. */
import { type ReactNode, useState } from "react";
import { api, read } from "../../../api/client";
import { useAction } from "../../../components/action";
import { FormDialog } from "../../../components/dialog";
import { TextField } from "../../../components/field";

export const rollBack = (release_id: string, reason: string) =>
  read(
    api.POST("/admin/v1/releases/{release_id}/roll-back", {
      params: { path: { release_id } },
      body: { reason },
    }),
  );

interface ReasonFormProps {
  title: string;
  submit: string;
  danger: boolean;
  /** What the reason says until somebody writes another. */
  suggested?: string;
  act: (reason: string) => Promise<unknown>;
  done: string;
  disabled?: boolean;
  children: ReactNode;
  onClose: () => void;
}

export function ReasonForm({ suggested = "", act, done, disabled, children, ...dialog }: ReasonFormProps) {
  const [reason, setReason] = useState(suggested);
  const acting = useAction(() => act(reason), { quiet: true, done, then: dialog.onClose });
  return (
    <FormDialog
      {...dialog}
      busy={acting.isPending}
      error={acting.error}
      disabled={disabled || reason.trim() === ""}
      onSubmit={() => acting.mutate(undefined)}
    >
      {children}
      <TextField
        label="Reason"
        value={reason}
        onChange={(event) => setReason(event.currentTarget.value)}
        required
        autoFocus={suggested === ""}
        maxLength={500}
        hint="For the release’s steps and the audit log."
      />
    </FormDialog>
  );
}
