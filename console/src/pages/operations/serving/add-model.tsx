/** Adds a model with its engine, adds a pool, adds replicas to one and moves them; each makes a new version of the
 * fleet. */
import { type UseMutationResult, useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { ApiError } from "../../../api/error";
import { useAction } from "../../../components/action";
import { FormDialog } from "../../../components/dialog";
import { SelectField, TextField } from "../../../components/field";
import { Notice } from "../../../components/notice";
import { count } from "../../../format/number";
import { TIERS } from "../../../shell/choices";

const DRIVERS = {
  vllm: "vllm serve",
  sglang: "SGLang’s server",
  tensorrt_llm: "trtllm-serve, for chat only",
  llama_cpp: "llama.cpp’s llama-server, with --metrics",
  embedded: "slipstream engine, on this machine or another one",
  openai: "any other OpenAI-compatible server, such as Ollama or a hosted provider",
} as const;
type Driver = keyof typeof DRIVERS;
const NEW_ENGINE = "";
const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]*";

export function AddModel({ pools, onClose }: { pools: string[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [tier, setTier] = useState<Schemas["Tier"]>("chat");
  const [context, setContext] = useState("");
  const [engineModel, setEngineModel] = useState("");
  const [pool, setPool] = useState(NEW_ENGINE);
  const [url, setUrl] = useState("");
  const [driver, setDriver] = useState<Driver>("vllm");
  const [keyFile, setKeyFile] = useState("");
  const taken = pool === NEW_ENGINE && pools.includes(name.trim());
  const engine = useMutation({
    mutationFn: (chosen: Driver) =>
      read(api.GET("/admin/v1/engine-models", { params: { query: { url: url.trim(), driver: chosen } } })),
    onSuccess: ({ data }) => {
      const model = data.find((each) => each.name === (engineModel.trim() || name.trim())) ?? data[0];
      if (model && model.name !== name.trim()) setEngineModel(model.name);
      if (model?.context_tokens) setContext(String(model.context_tokens));
    },
  });
  const ask = (chosen: Driver) => url.trim() && engine.mutate(chosen);
  const form = useProbedEdit({
    word: "Add",
    asked: [name, engineModel, pool, url, driver, context],
    edit: (query): Promise<unknown> => {
      const named = name.trim();
      const model = {
        name: named,
        tier,
        pool: pool || named,
        context_tokens: Number(context),
        engine_model: engineModel.trim() || null,
      };
      if (pool !== NEW_ENGINE) {
        const params = { path: { model_name: named }, query };
        return read(api.PUT("/admin/v1/models/{model_name}", { params, body: model }));
      }
      const replicas = [{ id: `${named}-1`, url: url.trim() }];
      const added = { name: named, driver, api_key_file: keyFile.trim(), replicas };
      return read(api.POST("/admin/v1/models", { params: { query }, body: { model, pool: added } }));
    },
    done: (checked) =>
      checked
        ? `${name.trim()} is added, and serves requests within seconds.`
        : `${name.trim()} is added unchecked. The fleet page shows whether its engine can serve.`,
    onClose,
  });
  return (
    <FormDialog title="Add a model" wide disabled={taken} {...form}>
      <Notice>
        For a model on the machine where “slipstream up” runs, run{" "}
        <code>slipstream up --chat-model NAME|FILE</code> instead, which starts the engine and adds the model.
      </Notice>
      <div className="grid-2">
        <TextField
          label="Name"
          hint="Clients send it as “model”."
          required
          pattern={NAME}
          autoFocus
          error={taken ? "A pool already has this name: choose it under “Served by”." : undefined}
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
        <SelectField label="Served by" value={pool} onChange={(event) => setPool(event.currentTarget.value)}>
          <option value={NEW_ENGINE}>an engine at a URL</option>
          {pools.map((each) => (
            <option key={each} value={each}>
              the pool {each}
            </option>
          ))}
        </SelectField>
        {pool === NEW_ENGINE && (
          <>
            <DriverField
              value={driver}
              onChange={(chosen) => {
                setDriver(chosen);
                ask(chosen);
              }}
            />
            <EngineUrl value={url} onChange={setUrl} onBlur={() => ask(driver)} said={reported(engine)} />
            <KeyFile value={keyFile} onChange={setKeyFile} />
          </>
        )}
        <TextField
          label="The engine’s name for it"
          hint="If the engine uses a different name from the one above (engine_model)."
          value={engineModel}
          onChange={(event) => setEngineModel(event.currentTarget.value)}
        />
        <TextField
          label="Context"
          hint="Prompt and output tokens together (context_tokens). Filled in if the engine reports it."
          required
          inputMode="numeric"
          pattern="[1-9][0-9]*"
          value={context}
          onChange={(event) => setContext(event.currentTarget.value)}
        />
      </div>
    </FormDialog>
  );
}

/** A pool that serves no model yet, such as a release's candidate. */
export function AddPool({ pools, onClose }: { pools: string[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [id, setId] = useState("");
  const [url, setUrl] = useState("");
  const [driver, setDriver] = useState<Driver>("vllm");
  const [keyFile, setKeyFile] = useState("");
  const named = name.trim();
  const taken = pools.includes(named);
  const form = useProbedEdit({
    word: "Add",
    asked: [name, url, driver],
    edit: (query) =>
      read(
        api.PUT("/admin/v1/pools/{pool_name}", {
          params: { path: { pool_name: named }, query },
          body: {
            name: named,
            driver,
            api_key_file: keyFile.trim(),
            replicas: [{ id: id.trim() || `${named}-1`, url: url.trim() }],
          },
        }),
      ),
    done: () =>
      `The pool ${named} is added. It gets requests once a model uses it or a release starts to it.`,
    onClose,
  });
  return (
    <FormDialog title="Add a pool" wide disabled={taken} {...form}>
      <Notice>
        A pool without a model gets no requests. Use it to put the new version of a model beside the old one,
        and start a release.
      </Notice>
      <div className="grid-2">
        <TextField
          label="Name"
          required
          pattern={NAME}
          autoFocus
          error={taken ? "A pool already has this name." : undefined}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <DriverField value={driver} onChange={setDriver} />
        <TextField
          label="Replica’s id"
          pattern={NAME}
          placeholder={named && `${named}-1`}
          value={id}
          onChange={(event) => setId(event.currentTarget.value)}
        />
        <EngineUrl value={url} onChange={setUrl} />
        <KeyFile value={keyFile} onChange={setKeyFile} />
      </div>
    </FormDialog>
  );
}

export function AddReplica({ pool, onClose }: { pool: Schemas["Pool"]; onClose: () => void }) {
  const [id, setId] = useState(`${pool.name}-${(pool.replicas?.length ?? 0) + 1}`);
  const [url, setUrl] = useState("");
  const taken = pool.replicas?.some((each) => each.id === id.trim()) ?? false;
  const form = useProbedEdit({
    word: "Add",
    asked: [url],
    edit: (query) => putReplica(pool.name, { id: id.trim(), url: url.trim() }, query),
    done: () => `${id.trim()} gets requests once it is healthy.`,
    onClose,
  });
  return (
    <FormDialog title={`Add a replica to ${pool.name}`} disabled={taken} {...form}>
      <TextField
        label="Id"
        required
        pattern={NAME}
        error={taken ? "A replica of this pool already has this id." : undefined}
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
  const form = useProbedEdit({
    word: "Change",
    asked: [url],
    edit: (query) => putReplica(pool.name, { ...replica, url: url.trim() }, query),
    done: () => `${replica.id} gets requests at its new URL once it is healthy.`,
    onClose,
  });
  return (
    <FormDialog title={`Change the URL of ${replica.id}`} {...form}>
      <EngineUrl value={url} onChange={setUrl} />
    </FormDialog>
  );
}

const putReplica = (pool: string, replica: Schemas["Replica"], query: Query) =>
  read(
    api.PUT("/admin/v1/pools/{pool_name}/replicas/{replica_id}", {
      params: { path: { pool_name: pool, replica_id: replica.id }, query },
      body: replica,
    }),
  );

type Query = { probe: boolean };

/** The form of an edit that asks the engine first. Where it cannot serve, the reason is shown, and a second press goes
 * on without asking. asked: a change of these asks again. done: the sentence after it, by whether the engine was asked. */
function useProbedEdit({
  word,
  asked,
  edit,
  done,
  onClose,
}: {
  word: string;
  asked: string[];
  edit: (query: Query) => Promise<unknown>;
  done: (checked: boolean) => string;
  onClose: () => void;
}) {
  const engine = asked.join(" ");
  const [doubted, setDoubted] = useState<string | null>(null);
  const query = { probe: doubted !== engine };
  const action = useAction(() => edit(query), {
    quiet: true,
    done: done(query.probe),
    then: onClose,
    failed: (error: unknown) => setDoubted(isDoubt(error) ? engine : null),
  });
  const { error } = action;
  return {
    submit: query.probe ? word : `${word} anyway`,
    busy: action.isPending,
    /** The API advises its callers to leave out a parameter; here there is a button. */
    error: isDoubt(error)
      ? error.saying(error.message.replace(ADVICE, ` Choose “${word} anyway” to skip this check.`))
      : error,
    onSubmit: () => action.mutate(undefined),
    onClose,
  };
}

const ADVICE = " To make the edit without this check, leave out `probe`.";
const isDoubt = (error: unknown): error is ApiError => error instanceof ApiError && error.param === "probe";

/** What an engine answered when it was asked for its models. */
function reported({ data, error, isPending }: UseMutationResult<Schemas["ReportedModels"], Error, Driver>) {
  if (isPending) return "Reading the engine’s models…";
  if (error) return error.message;
  if (!data) return undefined;
  return data.data.length > 0 ? `It serves ${data.data.map(worded).join("; ")}.` : "It lists no models.";
}

const worded = ({ name, context_tokens }: Schemas["ReportedModel"]) =>
  context_tokens === null ? name : `${name} with a context of ${count(context_tokens)} tokens`;

function DriverField({ value, onChange }: { value: Driver; onChange: (value: Driver) => void }) {
  return (
    <SelectField
      label="Driver"
      hint="The program that serves the engine’s API."
      value={value}
      onChange={(event) => onChange(event.currentTarget.value as Driver)}
    >
      {Object.entries(DRIVERS).map(([each, program]) => (
        <option key={each} value={each}>
          {each}: {program}
        </option>
      ))}
    </SelectField>
  );
}

function KeyFile({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <TextField
      label="API key file"
      hint="A path on the gateways’ machines. If empty, the deployment’s token is sent, which suits your own engines."
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}

function EngineUrl({
  value,
  onChange,
  onBlur,
  said,
}: {
  value: string;
  onChange: (value: string) => void;
  onBlur?: () => void;
  said?: string | undefined;
}) {
  return (
    <TextField
      label="Engine’s URL"
      hint={said ?? "The address that gateways and the router use, such as http://10.0.0.10:8000."}
      required
      type="url"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      onBlur={onBlur}
    />
  );
}
