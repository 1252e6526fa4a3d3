/** Adds a model with its engine, adds replicas to a pool and moves them; each makes a new version of the fleet. */
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { ApiError } from "../../../api/error";
import { useAction } from "../../../components/action";
import { FormDialog } from "../../../components/dialog";
import { SelectField, TextField } from "../../../components/field";
import { TIERS } from "../../../shell/choices";

const DRIVERS = ["sglang", "vllm", "tensorrt_llm", "openai"] as const;
type Driver = (typeof DRIVERS)[number];
const NEW_ENGINE = "";
const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]*";

export function AddModel({ pools, onClose }: { pools: string[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [tier, setTier] = useState<Schemas["Tier"]>("chat");
  const [context, setContext] = useState("32768");
  const [engineModel, setEngineModel] = useState("");
  const [pool, setPool] = useState(NEW_ENGINE);
  const [url, setUrl] = useState("");
  const [driver, setDriver] = useState<Driver>("vllm");
  const [keyFile, setKeyFile] = useState("");
  const taken = pool === NEW_ENGINE && pools.includes(name.trim());
  const probe = useProbe(name, engineModel, pool, url, driver, context);
  const add = useAction(
    () => {
      const named = name.trim();
      const model = {
        name: named,
        tier,
        pool: pool || named,
        context_tokens: Number(context),
        engine_model: engineModel.trim() || null,
      };
      if (pool !== NEW_ENGINE) {
        const params = { path: { model_name: named }, query: probe.query };
        return read(api.PUT("/admin/v1/models/{model_name}", { params, body: model }));
      }
      const replicas = [{ id: `${named}-1`, url: url.trim() }];
      const added = { name: named, driver, api_key_file: keyFile.trim(), replicas };
      return read(
        api.POST("/admin/v1/models", { params: { query: probe.query }, body: { model, pool: added } }),
      );
    },
    {
      quiet: true,
      done: `${name.trim()} is added, and serves requests within seconds.`,
      then: onClose,
      failed: probe.failed,
    },
  );
  return (
    <FormDialog
      title="Add a model"
      submit={probe.submit("Add")}
      wide
      busy={add.isPending}
      error={add.error}
      disabled={taken}
      onSubmit={() => add.mutate(undefined)}
      onClose={onClose}
    >
      <div className="grid-2">
        <TextField
          label="Name"
          hint="Clients send it as “model”."
          required
          pattern={NAME}
          autoFocus
          error={taken ? "A pool has this name: choose it under “Served by”." : undefined}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <SelectField
          label="Tier"
          value={tier}
          onChange={(event) => setTier(event.currentTarget.value as Schemas["Tier"])}
        >
          {TIERS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </SelectField>
        <TextField
          label="Context"
          hint="Tokens of prompt and answer together (context_tokens)."
          required
          inputMode="numeric"
          pattern="[1-9][0-9]*"
          value={context}
          onChange={(event) => setContext(event.currentTarget.value)}
        />
        <TextField
          label="The engine’s name for it"
          hint="If it differs from the name above (engine_model)."
          value={engineModel}
          onChange={(event) => setEngineModel(event.currentTarget.value)}
        />
        <SelectField label="Served by" value={pool} onChange={(event) => setPool(event.currentTarget.value)}>
          <option value={NEW_ENGINE}>an engine at a URL</option>
          {pools.map((each) => (
            <option key={each} value={each}>
              the pool {each}
            </option>
          ))}
        </SelectField>
      </div>
      {pool === NEW_ENGINE && (
        <div className="grid-2">
          <EngineUrl value={url} onChange={setUrl} />
          <SelectField
            label="Driver"
            hint="openai: anything that speaks OpenAI’s API."
            value={driver}
            onChange={(event) => setDriver(event.currentTarget.value as Driver)}
          >
            {DRIVERS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </SelectField>
          <TextField
            label="File of its API key"
            hint="On the gateways’ machines. Empty: the deployment’s token, for engines of your own."
            value={keyFile}
            onChange={(event) => setKeyFile(event.currentTarget.value)}
          />
        </div>
      )}
    </FormDialog>
  );
}

export function AddReplica({ pool, onClose }: { pool: Schemas["Pool"]; onClose: () => void }) {
  const [id, setId] = useState(`${pool.name}-${(pool.replicas?.length ?? 0) + 1}`);
  const [url, setUrl] = useState("");
  const taken = pool.replicas?.some((each) => each.id === id.trim()) ?? false;
  const probe = useProbe(url);
  const add = useAction(() => putReplica(pool.name, { id: id.trim(), url: url.trim() }, probe.query), {
    quiet: true,
    done: `${id.trim()} is given requests once it is healthy.`,
    then: onClose,
    failed: probe.failed,
  });
  return (
    <FormDialog
      title={`Add a replica to ${pool.name}`}
      submit={probe.submit("Add")}
      busy={add.isPending}
      error={add.error}
      disabled={taken}
      onSubmit={() => add.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Id"
        required
        pattern={NAME}
        error={taken ? "A replica of this pool has this id." : undefined}
        value={id}
        onChange={(event) => setId(event.currentTarget.value)}
      />
      <EngineUrl value={url} onChange={setUrl} />
    </FormDialog>
  );
}

/** Gives a replica another URL; all else of it stays. */
export function ChangeUrl({
  pool,
  replica,
  onClose,
}: {
  pool: Schemas["Pool"];
  replica: Schemas["Replica"];
  onClose: () => void;
}) {
  const [url, setUrl] = useState(replica.url);
  const probe = useProbe(url);
  const change = useAction(() => putReplica(pool.name, { ...replica, url: url.trim() }, probe.query), {
    quiet: true,
    done: `${replica.id} is given requests at its new URL once it is healthy.`,
    then: onClose,
    failed: probe.failed,
  });
  return (
    <FormDialog
      title={`Change the URL of ${replica.id}`}
      submit={probe.submit("Change")}
      busy={change.isPending}
      error={change.error}
      onSubmit={() => change.mutate(undefined)}
      onClose={onClose}
    >
      <EngineUrl value={url} onChange={setUrl} />
    </FormDialog>
  );
}

const putReplica = (pool: string, replica: Schemas["Replica"], query: { probe: boolean }) =>
  read(
    api.PUT("/admin/v1/pools/{pool_name}/replicas/{replica_id}", {
      params: { path: { pool_name: pool, replica_id: replica.id }, query },
      body: replica,
    }),
  );

/** The engine is asked first. Where it cannot serve, the reason is shown, and a second press goes on without asking. */
function useProbe(...asked: string[]) {
  const engine = asked.join(" ");
  const [doubted, setDoubted] = useState<string | null>(null);
  return {
    query: { probe: doubted !== engine },
    submit: (word: string) => (doubted === engine ? `${word} anyway` : word),
    failed: (error: unknown) =>
      setDoubted(error instanceof ApiError && error.param === "probe" ? engine : null),
  };
}

function EngineUrl({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <TextField
      label="Engine’s URL"
      hint="As gateways and the router reach it, such as http://10.0.0.10:8000."
      required
      type="url"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
