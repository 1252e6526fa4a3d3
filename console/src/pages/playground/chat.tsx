import { type FormEvent, useRef, useState } from "react";
import { Button } from "../../components/button";
import { CodeBlock } from "../../components/copy";
import { TextArea, TextField } from "../../components/field";
import { Refused } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { type Generation, generate, NOTHING } from "./generation";
import { KeyCard, usePlaygroundKey } from "./key";
import { Measured } from "./measured";
import { ModelField, useAbout, useModels } from "./models";
import { SameCall } from "./same-call";

interface Turn {
  role: "user" | "assistant";
  content: string;
}

interface Options {
  model: string;
  system: string;
  temperature: string;
  maxTokens: string;
  tools: string;
  schema: string;
}

/** Text that has to be JSON, or nothing. */
function parsed(text: string): { value?: unknown; problem?: string } {
  if (text.trim() === "") return {};
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { problem: "This is not valid JSON." };
  }
}

export function chatBody(options: Options, turns: Turn[]): Record<string, unknown> {
  const tools = parsed(options.tools).value;
  const schema = parsed(options.schema).value;
  return {
    model: options.model,
    messages: [...(options.system.trim() ? [{ role: "system", content: options.system }] : []), ...turns],
    ...(options.temperature.trim() ? { temperature: Number(options.temperature) } : {}),
    ...(options.maxTokens.trim() ? { max_tokens: Number(options.maxTokens) } : {}),
    ...(tools === undefined ? {} : { tools }),
    ...(schema === undefined
      ? {}
      : { response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } } }),
    stream: true,
    stream_options: { include_usage: true },
  };
}

export function ChatPlayground() {
  const key = usePlaygroundKey();
  const models = useModels(key, "chat");
  const [options, setOptions] = useState<Options>({
    model: "",
    system: "",
    temperature: "",
    maxTokens: "256",
    tools: "",
    schema: "",
  });
  const [turns, setTurns] = useState<Turn[]>([]);
  const [question, setQuestion] = useState("");
  const [generation, setGeneration] = useState<Generation | null>(null);
  const [sent, setSent] = useState<Record<string, unknown> | null>(null);
  const [error, setError] = useState<unknown>(null);
  const abort = useRef<AbortController | null>(null);
  const model = models.data?.find((each) => each === options.model) ?? models.data?.[0] ?? "";
  const about = useAbout(key, model);
  const problems = { tools: parsed(options.tools).problem, schema: parsed(options.schema).problem };
  const running = generation?.running ?? false;
  const ready =
    key !== null &&
    model !== "" &&
    !running &&
    question.trim() !== "" &&
    !(problems.tools ?? problems.schema);
  const asked: Turn[] = question.trim() ? [...turns, { role: "user", content: question }] : turns;
  const body = chatBody({ ...options, model }, asked);
  const change = (name: keyof Options) => (event: { currentTarget: { value: string } }) => {
    const value = event.currentTarget.value;
    setOptions((all) => ({ ...all, [name]: value }));
  };
  const send = async (event: FormEvent) => {
    event.preventDefault();
    if (!ready) return;
    setError(null);
    setTurns(asked);
    setSent(body);
    setQuestion("");
    setGeneration(NOTHING);
    abort.current = new AbortController();
    let newest: Generation = NOTHING;
    const follow = (each: Generation) => {
      newest = each;
      setGeneration(each);
    };
    try {
      await generate("/v1/chat/completions", key, body, abort.current.signal, follow);
    } catch (thrown) {
      if (!(thrown instanceof DOMException && thrown.name === "AbortError")) setError(thrown);
      setGeneration({ ...newest, running: false });
    }
    if (newest.text !== "") setTurns([...asked, { role: "assistant", content: newest.text }]);
  };
  const answering = generation !== null && running;
  return (
    <Page title="Chat playground" about="Send a request as an application would, and see its time and cost.">
      <div className="stack">
        <KeyCard />
        <div className="play">
          <div className="stack">
            <Card
              title="Conversation"
              actions={
                turns.length > 0 &&
                !running && (
                  <Button
                    size="small"
                    onClick={() => {
                      setTurns([]);
                      setGeneration(null);
                      setSent(null);
                    }}
                  >
                    Start over
                  </Button>
                )
              }
            >
              <div className="stack">
                <ol className="turns" aria-live="polite" aria-busy={running}>
                  {turns.map((turn, place) => (
                    // biome-ignore lint/suspicious/noArrayIndexKey: turns are only added
                    <li key={place} data-role={turn.role}>
                      <b>{turn.role === "user" ? "You" : model}</b>
                      <p>{turn.content}</p>
                    </li>
                  ))}
                  {answering && (
                    <li data-role="assistant">
                      <b>{model}</b>
                      <p>
                        {generation.text}
                        <span className="caret" aria-hidden="true" />
                      </p>
                    </li>
                  )}
                </ol>
                {generation && generation.toolCalls.length > 0 && (
                  <div className="stack-tight">
                    {generation.toolCalls.map((call, place) => (
                      <CodeBlock
                        // biome-ignore lint/suspicious/noArrayIndexKey: calls are only added
                        key={place}
                        label={`Call of ${call.name}`}
                        code={`${call.name}(${call.arguments})`}
                      />
                    ))}
                  </div>
                )}
                {generation &&
                  generation.toolCalls.length === 0 &&
                  !running &&
                  sent !== null &&
                  "tools" in sent && (
                    <p className="quiet small">
                      The model answered without calling a tool. Models that were not trained for tools never
                      call one.
                    </p>
                  )}
                {error != null && <Refused error={error} />}
                <form className="stack-tight" onSubmit={(event) => void send(event)}>
                  <TextArea
                    label="Message"
                    rows={3}
                    value={question}
                    placeholder={
                      key === null
                        ? "Choose a key first"
                        : "Ask something. Enter sends it, Shift+Enter starts a new line."
                    }
                    onChange={(event) => setQuestion(event.currentTarget.value)}
                    onKeyDown={(event) => {
                      // what composes a character (Japanese, Chinese) ends with Enter too
                      if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
                        void send(event);
                      }
                    }}
                  />
                  <div className="row">
                    <Button type="submit" kind="primary" icon="play" disabled={!ready}>
                      Send
                    </Button>
                    {running && (
                      <Button icon="stop" onClick={() => abort.current?.abort()}>
                        Stop
                      </Button>
                    )}
                    {generation?.finish && <span className="quiet small">Ended by {generation.finish}</span>}
                  </div>
                </form>
              </div>
            </Card>
            {generation && <Measured generation={generation} model={model} />}
            <SameCall
              kind="chat"
              path="/v1/chat/completions"
              body={question.trim() === "" && sent !== null ? sent : body}
            />
          </div>
          <Card title="Options">
            <div className="stack">
              <ModelField
                models={models.data}
                model={model}
                about={about}
                onChange={change("model")}
                tier="chat"
              />
              <TextArea label="System message" rows={2} value={options.system} onChange={change("system")} />
              <TextField
                label="Temperature"
                inputMode="decimal"
                placeholder="the model’s"
                value={options.temperature}
                onChange={change("temperature")}
              />
              <TextField
                label="Output tokens at most"
                inputMode="numeric"
                value={options.maxTokens}
                onChange={change("maxTokens")}
              />
              <TextArea
                label="Tools (JSON)"
                rows={3}
                spellCheck={false}
                placeholder='[{"type": "function", "function": {"name": "…", "parameters": {}}}]'
                error={problems.tools}
                value={options.tools}
                onChange={change("tools")}
              />
              <TextArea
                label="JSON schema of the answer"
                rows={3}
                spellCheck={false}
                placeholder='{"type": "object", "properties": {}}'
                error={problems.schema}
                value={options.schema}
                onChange={change("schema")}
              />
            </div>
          </Card>
        </div>
      </div>
    </Page>
  );
}
