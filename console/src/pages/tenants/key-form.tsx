import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { Secret } from "../../components/copy";
import { FormDialog } from "../../components/dialog";
import { CheckField, ChoiceField, SelectField, TextField } from "../../components/field";
import { ShownOnce } from "../../components/shown-once";

const SCOPES = ["chat", "completions", "models", "evals"] as const;
const ENDS_IN_DAYS = { never: null, "30 days": 30, "90 days": 90, "1 year": 365 } as const;
type Ends = keyof typeof ENDS_IN_DAYS;
const DAY_MS = 86_400_000;

export function endOf(choice: Ends, now = Date.now()): string | null {
  const days = ENDS_IN_DAYS[choice];
  return days === null ? null : new Date(now + days * DAY_MS).toISOString();
}

/** What it ends with, of a few choices. */
export function EndsField({ value, onChange }: { value: Ends; onChange: (value: Ends) => void }) {
  return (
    <SelectField label="Ends" value={value} onChange={(event) => onChange(event.currentTarget.value as Ends)}>
      {Object.keys(ENDS_IN_DAYS).map((choice) => (
        <option key={choice}>{choice}</option>
      ))}
    </SelectField>
  );
}

export function NewKey({ projectId, onClose }: { projectId: string; onClose: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Schemas["Scope"][] | null>(null);
  const [ends, setEnds] = useState<Ends>("never");
  const make = useAction(
    () =>
      read(
        api.POST("/admin/v1/projects/{project_id}/keys", {
          params: { path: { project_id: projectId } },
          body: { name, scopes, expires_at: endOf(ends) },
        }),
      ),
    { quiet: true },
  );
  if (make.data)
    return <NewSecret title={`Key ${make.data.key.name}`} secret={make.data.secret} onClose={onClose} />;
  return (
    <FormDialog
      title="New key"
      submit="Make key"
      busy={make.isPending}
      error={make.error}
      onSubmit={() => make.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="Where it is used, such as “staging backend”."
        required
        autoFocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <ChoiceField legend="Scopes" all="everything" options={SCOPES} chosen={scopes} onChange={setScopes} />
      <EndsField value={ends} onChange={setEnds} />
    </FormDialog>
  );
}

/** A secret, this once. */
export function NewSecret({
  title,
  secret,
  onClose,
}: {
  title: string;
  secret: string;
  onClose: () => void;
}) {
  return (
    <ShownOnce title={title} onClose={onClose}>
      <Secret secret={secret} label="Secret" />
    </ShownOnce>
  );
}

const OVERLAPS_S = { now: 0, "in 1 hour": 3600, "in 1 day": 86_400, "in 7 days": 604_800 } as const;
type Overlap = keyof typeof OVERLAPS_S;

/** A new secret for a key; the old one ends now or after a while. rotate: asks the API for it. */
export function Rotate({
  name,
  rotate,
  onClose,
}: {
  name: string;
  rotate: (body: { overlap_s: number; end_previous: boolean }) => Promise<{ secret: string }>;
  onClose: () => void;
}) {
  const [overlap, setOverlap] = useState<Overlap>("in 1 day");
  const [ended, setEnded] = useState(false);
  const make = useAction(() => rotate({ overlap_s: OVERLAPS_S[overlap], end_previous: ended }), {
    quiet: true,
  });
  if (make.data)
    return <NewSecret title={`New secret of ${name}`} secret={make.data.secret} onClose={onClose} />;
  return (
    <FormDialog
      title={`Rotate ${name}`}
      submit="Make a new secret"
      busy={make.isPending}
      error={make.error}
      onSubmit={() => make.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        Limits and usage stay the key’s.{" "}
        {overlap === "now"
          ? "Applications that have the old secret are refused until they are given the new one."
          : "Change your applications over while both secrets open."}
      </p>
      <SelectField
        label="The old secret ends"
        value={overlap}
        onChange={(event) => setOverlap(event.currentTarget.value as Overlap)}
      >
        {Object.keys(OVERLAPS_S).map((choice) => (
          <option key={choice}>{choice}</option>
        ))}
      </SelectField>
      <CheckField
        label="If an earlier secret is still open, end that one now"
        checked={ended}
        onChange={(event) => setEnded(event.currentTarget.checked)}
      />
    </FormDialog>
  );
}
