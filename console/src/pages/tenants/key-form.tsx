import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useAction } from "../../components/action";
import { CodeBlock, Secret } from "../../components/copy";
import { FormDialog } from "../../components/dialog";
import { CheckField, ChoiceField, SelectField, TextField } from "../../components/field";
import { Refused } from "../../components/notice";
import { ShownOnce } from "../../components/shown-once";
import { useMyself } from "../../shell/session";
import { useServed } from "../playground/models";
import { firstRequest } from "../playground/snippets";
import { LimitFields, useLimitInput } from "./limit-fields";
import type { Counter } from "./limit-names";
import { putLimits } from "./limits-of";

/** `evals` is for keys of the deployment's internal organization alone, which commands make. */
const SCOPES = ["chat", "completions", "embeddings", "models"] as const;
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

const FIRST_LIMITS: Counter[] = ["requests_per_minute", "tokens_per_minute", "money_micro_per_month"];

/** The form of a key, with optional limits. */
export function NewKey({
  organizationId,
  projectId,
  onClose,
}: {
  organizationId: string;
  projectId: string;
  onClose: () => void;
}) {
  const { can } = useMyself();
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Schemas["Scope"][] | null>(null);
  const [ends, setEnds] = useState<Ends>("never");
  const input = useLimitInput();
  const limit = useAction((keyId: string) => putLimits("key", keyId, "all", input.limits), { quiet: true });
  const make = useAction(
    () =>
      read(
        api.POST("/admin/v1/projects/{project_id}/keys", {
          params: { path: { project_id: projectId } },
          body: { name, scopes, expires_at: endOf(ends) },
        }),
      ),
    {
      quiet: true,
      then: (made) => {
        if (Object.keys(input.limits).length > 0) limit.mutate(made.key.id);
      },
    },
  );
  if (make.data)
    return (
      <ShownOnce title={`Key ${make.data.key.name}`} onClose={onClose}>
        <Secret secret={make.data.secret} label="Secret" />
        {limit.error != null && (
          <>
            <Refused error={limit.error} />
            <p>The key has no limits of its own yet. Set them on its page.</p>
          </>
        )}
        <TryKey secret={make.data.secret} />
      </ShownOnce>
    );
  return (
    <FormDialog
      title="New key"
      submit="Make key"
      busy={make.isPending}
      error={make.error}
      disabled={Object.keys(input.problems).length > 0}
      onSubmit={() => make.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="Its use, such as “staging backend”."
        required
        autoFocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <ChoiceField legend="Scopes" all="everything" options={SCOPES} chosen={scopes} onChange={setScopes} />
      <EndsField value={ends} onChange={setEnds} />
      {can("limits.write", organizationId) && (
        <fieldset className="plain stack-tight">
          <legend className="field-label">Limits of this key</legend>
          <p className="quiet small">An empty field sets no limit; the limits of higher levels apply.</p>
          <LimitFields input={input} only={FIRST_LIMITS} />
        </fieldset>
      )}
    </FormDialog>
  );
}

/** The base URL for SDKs, and a first request to a model of the key. */
function TryKey({ secret }: { secret: string }) {
  const models = useServed(secret);
  const served = models.data?.find((each) => each.tier === "chat") ?? models.data?.[0];
  return (
    <div className="stack-tight">
      <span className="field-label">Base URL for SDKs</span>
      <CodeBlock code={`${location.origin}/v1`} label="Base URL" />
      {served && (
        <>
          <span className="field-label">Try it</span>
          <CodeBlock code={firstRequest(location.origin, secret, served)} label="A first request" />
        </>
      )}
    </div>
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
        The key keeps its limits and usage.{" "}
        {overlap === "now"
          ? "Applications with the old secret are refused until they have the new one."
          : "Both secrets work until then: update your applications in the meantime."}
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
        label="End a still valid earlier secret now"
        checked={ended}
        onChange={(event) => setEnded(event.currentTarget.checked)}
      />
    </FormDialog>
  );
}
