import type { EditorView } from "@codemirror/view";
import { useEffect, useRef, useState } from "react";
import { sentenceOf } from "../../api/error";
import { SelectField, TextField } from "../../components/field";
import { Notice } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { Editor } from "./editor";
import { type Generation, generate, NOTHING } from "./generation";
import { suggest } from "./ghost";
import { KeyCard, useModels, usePlaygroundKey } from "./key";
import { Measured } from "./measured";
import { SameCall } from "./same-call";

const FIRST = `def mean(values: list[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / `;
const PAUSE_MS = 80;

export function fillBody(
  model: string,
  maxTokens: string,
  prefix: string,
  suffix: string,
): Record<string, unknown> {
  return {
    model,
    prompt: prefix,
    ...(suffix === "" ? {} : { suffix }),
    max_tokens: Number(maxTokens) || 48,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  };
}

export function AutocompletePlayground() {
  const key = usePlaygroundKey();
  const models = useModels(key);
  const [chosen, setChosen] = useState("");
  const [maxTokens, setMaxTokens] = useState("48");
  const [around, setAround] = useState({ prefix: FIRST, suffix: "" });
  const [generation, setGeneration] = useState<Generation | null>(null);
  const [counts, setCounts] = useState({ shown: 0, taken: 0 });
  const [error, setError] = useState<unknown>(null);
  const abort = useRef<AbortController | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const model =
    chosen || models.data?.find((each) => /code|complet|fim/.test(each)) || models.data?.[0] || "";
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      abort.current?.abort();
    },
    [],
  );

  const typed = (view: EditorView) => {
    const head = view.state.selection.main.head;
    const text = view.state.doc.toString();
    const place = { prefix: text.slice(0, head), suffix: text.slice(head) };
    setAround(place);
    clearTimeout(timer.current);
    // a newer keystroke ends the older request: the gateway stops its engine
    abort.current?.abort();
    if (key === null || model === "") return;
    timer.current = setTimeout(() => void ask(view, head, place), PAUSE_MS);
  };

  const ask = async (view: EditorView, head: number, { prefix, suffix }: typeof around) => {
    const controller = new AbortController();
    abort.current = controller;
    setError(null);
    setGeneration(NOTHING);
    let shown = false;
    try {
      await generate(
        "/v1/completions",
        key ?? "",
        fillBody(model, maxTokens, prefix, suffix),
        controller.signal,
        (each) => {
          if (controller.signal.aborted) return;
          setGeneration(each);
          if (each.text === "" || view.state.selection.main.head !== head) return;
          view.dispatch({ effects: suggest.of({ at: head, text: each.text }) });
          if (!shown) setCounts((all) => ({ ...all, shown: all.shown + 1 }));
          shown = true;
        },
      );
    } catch (thrown) {
      if (controller.signal.aborted) return;
      setError(thrown);
      setGeneration(null);
    }
  };

  return (
    <Page
      title="Autocomplete playground"
      about="Type: the model’s text stands grey behind the cursor. Tab takes it, Escape does not."
    >
      <div className="stack">
        <KeyCard />
        <div className="play">
          <div className="stack">
            <Card
              title="Editor"
              about="Python. The text after the cursor is sent too: the model fills the gap."
            >
              <div className="stack-tight">
                <Editor
                  label="Code"
                  initial={FIRST}
                  onTyped={typed}
                  onTaken={() => setCounts((all) => ({ ...all, taken: all.taken + 1 }))}
                />
                <p className="small quiet" role="status">
                  {key === null
                    ? "Choose a key first, then type."
                    : `${counts.shown} shown, ${counts.taken} taken in this page.`}
                </p>
                {error != null && <Notice tone="bad">{sentenceOf(error)}</Notice>}
              </div>
            </Card>
            {generation && <Measured generation={generation} model={model} />}
            <SameCall
              kind="completions"
              path="/v1/completions"
              body={fillBody(model, maxTokens, around.prefix, around.suffix)}
            />
          </div>
          <Card title="Options">
            <div className="stack">
              <SelectField
                label="Model"
                value={model}
                onChange={(event) => setChosen(event.currentTarget.value)}
              >
                {models.data?.map((each) => <option key={each}>{each}</option>) ?? (
                  <option value="">Choose a key first</option>
                )}
              </SelectField>
              <TextField
                label="Output tokens at most"
                inputMode="numeric"
                value={maxTokens}
                onChange={(event) => setMaxTokens(event.currentTarget.value)}
              />
            </div>
          </Card>
        </div>
      </div>
    </Page>
  );
}
