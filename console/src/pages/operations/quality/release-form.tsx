/** Start a release: which model, which pool, by which stages, judged by what. */
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, read } from "../../../api/client";
import { useFleetModels, useFleetPools } from "../../../api/fleet-names";
import { useAction } from "../../../components/action";
import { FormDialog } from "../../../components/dialog";
import { SelectField, TextField } from "../../../components/field";
import { Notice } from "../../../components/notice";
import { leastOf, shareOf, stagesOf, wholeOf } from "./release-input";
import { SlicesField } from "./slices-field";

const replicasOf = (many: number) => (many === 1 ? "1 replica" : `${many} replicas`);
const sentence = (value: unknown) => (typeof value === "string" ? value : null);

export function ReleaseForm({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const models = useFleetModels();
  const pools = useFleetPools();
  const [texts, setTexts] = useState({
    model: "",
    candidate: "",
    control: "",
    engineModel: "",
    stages: "shadow, 1, 5, 25, 100",
    shadowShare: "5",
    shadowLeast: "100",
    tolerance: "",
    least: "",
  });
  const [slices, setSlices] = useState<string[]>([]);
  const set = (name: keyof typeof texts) => (event: { currentTarget: { value: string } }) => {
    const value = event.currentTarget.value;
    setTexts((all) => ({ ...all, [name]: value }));
  };
  const free = (models.data ?? []).filter((model) => !model.canary);
  const model = free.find((each) => each.name === texts.model) ?? free[0];
  // the API refuses a pool that serves only models of another tier
  const ofAnotherTier = (pool: string) => {
    const served = (models.data ?? []).filter((each) => each.pool === pool);
    return served.length > 0 && served.every((each) => each.tier !== model?.tier);
  };
  const others = (pools.data ?? []).filter(
    (pool) =>
      pool.name !== model?.pool &&
      (pool.replicas ?? []).length > 0 &&
      pool.role !== "prefill" &&
      !ofAnotherTier(pool.name),
  );
  const owners = new Map((models.data ?? []).map((each) => [each.pool, each.name]));
  // a pool that another model is served from is chosen by name only
  const candidate =
    others.find((pool) => pool.name === texts.candidate) ?? others.find((pool) => !owners.has(pool.name));
  const owner = candidate && owners.get(candidate.name);
  const stages = stagesOf(texts.stages);
  const least = leastOf(texts.least, stages);
  const shadowShare = shareOf(texts.shadowShare, 0, 1);
  const shadowLeast = wholeOf(texts.shadowLeast, 0, 1_000_000);
  const tolerance = shareOf(texts.tolerance, 0, 0.5);
  const shadows = Array.isArray(stages) && stages[0] === 0;
  const wrong = [stages, least, shadowShare, shadowLeast, tolerance].some((each) => sentence(each) !== null);
  const start = useAction(
    () =>
      read(
        api.POST("/admin/v1/releases", {
          body: {
            model: model?.name ?? "",
            candidate_pool: candidate?.name ?? "",
            control_pool: texts.control,
            engine_model: texts.engineModel.trim() || null,
            stages: Array.isArray(stages) ? stages : [],
            ...(typeof shadowShare === "number" ? { shadow_share: shadowShare } : {}),
            ...(shadows && typeof shadowLeast === "number" ? { shadow_least: shadowLeast } : {}),
            slices,
            margins: {
              ...(typeof tolerance === "number" ? { tolerance } : {}),
              ...(Array.isArray(least) ? { least_units: least } : {}),
            },
          },
        }),
      ),
    {
      quiet: true,
      done: (made) => `The release of ${made.model} is started.`,
      then: (made) => {
        onClose();
        void navigate({ to: "/operations/releases/$releaseId", params: { releaseId: made.id } });
      },
    },
  );
  const known = models.data !== undefined && pools.data !== undefined;
  return (
    <FormDialog
      title="Start a release"
      wide
      submit="Start"
      busy={start.isPending}
      error={start.error ?? models.error ?? pools.error}
      disabled={wrong || !model || !candidate}
      onSubmit={() => start.mutate(undefined)}
      onClose={onClose}
    >
      {known && !model && (
        <Notice tone="warn" title="Every model is being released">
          A model has one release at a time. Wait for the release to end, or roll it back.
        </Notice>
      )}
      {model && candidate && owner && (
        <Notice tone="warn" title={`${candidate.name} serves ${owner}`}>
          Requests for {model.name} would be answered by the pool of another model.
        </Notice>
      )}
      {known && model && others.length === 0 && (
        <Notice tone="warn" title="There is no pool to release">
          No other pool with replicas can serve {model.name}. Add one with the new version on the{" "}
          <Link to="/operations/fleet">fleet page</Link>, or run{" "}
          <code className="wrap">
            slipstream fleet pools set {model.name}-2 --driver sglang --replica ID=URL
          </code>
        </Notice>
      )}
      <div className="grid-2">
        <SelectField
          label="Model"
          value={model?.name ?? ""}
          onChange={(event) => {
            set("model")(event);
            setSlices([]);
          }}
          required
        >
          {free.map((each) => (
            <option key={each.name} value={each.name}>
              {each.name} (on {each.pool})
            </option>
          ))}
        </SelectField>
        <SelectField
          label="Candidate pool"
          value={candidate?.name ?? ""}
          onChange={set("candidate")}
          required
          hint="The pool with the new version."
        >
          {!candidate && <option value="">Choose a pool</option>}
          {others.map((pool) => (
            <option key={pool.name} value={pool.name}>
              {pool.name} ({pool.driver}, {replicasOf(pool.replicas?.length ?? 0)})
            </option>
          ))}
        </SelectField>
        <SelectField
          label="Control arm"
          value={texts.control}
          onChange={set("control")}
          hint="The pool that serves the old version with caches as empty as the candidate’s."
        >
          <option value="">
            the same pool ({model?.pool ?? "the model’s"}), with separate cache entries
          </option>
          {others
            .filter((pool) => pool !== candidate)
            .map((pool) => (
              <option key={pool.name} value={pool.name}>
                {pool.name}
              </option>
            ))}
        </SelectField>
        <TextField
          label="The engines’ name for the model"
          value={texts.engineModel}
          onChange={set("engineModel")}
          placeholder={model?.engine_model ?? model?.name ?? ""}
          hint="If the candidate’s engines use another name."
        />
      </div>
      <TextField
        label="Stages, in percent of sessions"
        value={texts.stages}
        onChange={set("stages")}
        required
        error={sentence(stages)}
        hint="“shadow” serves no customer: requests are copied to the candidate, and both responses are compared."
      />
      <div className="grid-2">
        <TextField
          label="Sessions copied, percent"
          value={texts.shadowShare}
          onChange={set("shadowShare")}
          inputMode="decimal"
          error={sentence(shadowShare)}
          hint="In every stage before 100 %."
        />
        {shadows && (
          <TextField
            label="Copies answered before the shadow stage ends"
            value={texts.shadowLeast}
            onChange={set("shadowLeast")}
            inputMode="numeric"
            error={sentence(shadowLeast)}
          />
        )}
        <TextField
          label="Allowed increase of latency, percent"
          value={texts.tolerance}
          onChange={set("tolerance")}
          inputMode="decimal"
          placeholder="10"
          error={sentence(tolerance)}
        />
        <TextField
          label="Minimum sessions per arm, by stage"
          value={texts.least}
          onChange={set("least")}
          placeholder="200, 500, 1000"
          error={sentence(least)}
        />
      </div>
      <SlicesField
        legend="Slices that must pass"
        hint="Each chosen slice is compared with the old version. If you choose none, no items run."
        tier={model?.tier}
        chosen={slices}
        onChange={setSlices}
      />
    </FormDialog>
  );
}
