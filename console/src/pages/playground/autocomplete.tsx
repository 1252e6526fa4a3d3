import type { EditorView } from "@codemirror/view";
import { useEffect, useRef, useState } from "react";
import { CheckField, TextField } from "../../components/field";
import { Refused } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { Editor } from "./editor";
import { type Generation, generate, NOTHING, report } from "./generation";
import { suggest } from "./ghost";
import { KeyCard, usePlaygroundKey } from "./key";
import { Measured } from "./measured";
import { ModelField, useAbout, useModels } from "./models";
import { SameCall } from "./same-call";

/** The shipped code model is sure enough of its end. */
const FIRST = `class Stack:
    def __init__(self) -> None:
        self.items = []

    def push(self, item) -> None:
        self.items.`;
/** As the language server has them (tools/lsp/config.py). */
const PAUSE_MS = 75;
const MAX_TOKENS = 128;
/** Has the gateway answer as it answers an editor: it ends the text with its line or block, and leaves out a completion
 * that the model was not sure enough of. */
const AS_EDITOR = { "X-Slipstream-Client": "editor" };

/** A suggestion that stands in the editor. over: it was taken or rejected; what still comes of it is not shown. */
interface Showing {
  requestId: string | null;
  at: number;
  text: string;
  since: number;
  over: boolean;
}

export function fillBody(
  model: string,
  maxTokens: string,
  prefix: string,
  suffix: string,
  unsure = false,
): Record<string, unknown> {
  return {
    model,
    prompt: prefix,
    // a gap at the end of a file too
    suffix,
    max_tokens: Number(maxTokens) || MAX_TOKENS,
    temperature: 0,
    ...(unsure ? { min_confidence: 0 } : {}),
    user: "playground",
    stream: true,
    stream_options: { include_usage: true },
  };
}

export function AutocompletePlayground() {
  const key = usePlaygroundKey();
  const models = useModels(key, "autocomplete");
  const [chosen, setChosen] = useState("");
  const [maxTokens, setMaxTokens] = useState(String(MAX_TOKENS));
  const [unsure, setUnsure] = useState(false);
  const [around, setAround] = useState({ prefix: FIRST, suffix: "" });
  const [sent, setSent] = useState<Record<string, unknown> | null>(null);
  const [generation, setGeneration] = useState<Generation | null>(null);
  const [counts, setCounts] = useState({ shown: 0, taken: 0 });
  const [error, setError] = useState<unknown>(null);
  const abort = useRef<AbortController | null>(null);
  const showing = useRef<Showing | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const model = models.data?.find((each) => each === chosen) ?? models.data?.[0] ?? "";
  const about = useAbout(key, model);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      abort.current?.abort();
    },
    [],
  );

  /** Tell the gateway, once, what became of what is shown. */
  const ended = (type: "select" | "dismiss", characters?: number) => {
    const shown = showing.current;
    if (shown === null || shown.over) return;
    shown.over = true;
    tell(shown, { type, ...(characters === undefined ? {} : { characters }) });
  };

  const tell = (shown: Showing, event: { type: "view" | "select" | "dismiss"; characters?: number }) => {
    if (key === null || shown.requestId === null) return;
    const elapsed_ms = Math.round(performance.now() - shown.since);
    void report(key, shown.requestId, { ...event, view_id: "playground", elapsed_ms });
  };

  const placeOf = (view: EditorView) => {
    const head = view.state.selection.main.head;
    const text = view.state.doc.toString();
    const place = { prefix: text.slice(0, head), suffix: text.slice(head) };
    setAround(place);
    return { head, place };
  };

  const typed = (view: EditorView) => {
    const shown = showing.current;
    // typed out by hand it was neither taken nor rejected
    if (shown && view.state.sliceDoc(shown.at, shown.at + shown.text.length) !== shown.text) ended("dismiss");
    showing.current = null;
    const { head, place } = placeOf(view);
    setSent(null);
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
    let shown = null as Showing | null;
    const body = fillBody(model, maxTokens, prefix, suffix, unsure);
    setSent(body);
    try {
      const follow = (each: Generation) => {
        if (controller.signal.aborted) return;
        setGeneration(each);
        const text = each.text.trimEnd();
        if (text === "" || shown?.over || view.state.selection.main.head !== head) return;
        view.dispatch({ effects: suggest.of({ at: head, text }) });
        if (shown === null) {
          shown = { requestId: each.requestId, at: head, text: "", since: performance.now(), over: false };
          showing.current = shown;
          tell(shown, { type: "view" });
          setCounts((all) => ({ ...all, shown: all.shown + 1 }));
        }
        shown.text = text;
      };
      await generate("/v1/completions", key ?? "", body, controller.signal, follow, AS_EDITOR);
    } catch (thrown) {
      if (controller.signal.aborted) return;
      setError(thrown);
      setGeneration(null);
    }
  };

  return (
    <Page
      title="Autocomplete playground"
      about="Type: the model’s suggestion appears in grey after the cursor. Tab accepts it, Escape dismisses it."
    >
      <div className="stack">
        <KeyCard />
        <div className="play">
          <div className="stack">
            <Card
              title="Editor"
              about="Python, completed as in an editor: the text after the cursor is sent too, a suggestion ends with its line or block, and an unsure suggestion is hidden."
            >
              <div className="stack-tight">
                <Editor
                  label="Code"
                  initial={FIRST}
                  onTyped={typed}
                  onTaken={(view, text) => {
                    ended("select", text.length);
                    placeOf(view);
                    setCounts((all) => ({ ...all, taken: all.taken + 1 }));
                  }}
                  onDismissed={() => ended("dismiss")}
                />
                <p className="small quiet" role="status">
                  {key === null
                    ? "Choose a key first, then type."
                    : `${counts.shown} shown, ${counts.taken} accepted on this page.`}
                  {generation !== null &&
                    !generation.running &&
                    generation.text.trimEnd() === "" &&
                    (unsure
                      ? " The model has nothing to add here."
                      : " No suggestion here: the model was not sure enough, or had nothing to add.")}
                </p>
                {error != null && <Refused error={error} />}
              </div>
            </Card>
            {generation && <Measured generation={generation} model={model} />}
            <SameCall
              kind="completions"
              path="/v1/completions"
              body={sent ?? fillBody(model, maxTokens, around.prefix, around.suffix, unsure)}
              headers={AS_EDITOR}
            />
          </div>
          <Card title="Options">
            <div className="stack">
              <ModelField
                models={models.data}
                model={model}
                about={about}
                onChange={(event) => setChosen(event.currentTarget.value)}
                tier="autocomplete"
              />
              <TextField
                label="Output tokens at most"
                inputMode="numeric"
                value={maxTokens}
                onChange={(event) => setMaxTokens(event.currentTarget.value)}
              />
              <CheckField
                label={
                  <>
                    Show unsure suggestions too (<code>min_confidence</code> 0)
                  </>
                }
                checked={unsure}
                onChange={(event) => setUnsure(event.currentTarget.checked)}
              />
            </div>
          </Card>
        </div>
      </div>
    </Page>
  );
}
