/** CodeMirror in a shadow root: there it keeps its styles as sheets, where in the page it would write style elements,
 * which the content security policy refuses. */
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import { type GhostCalls, ghostText } from "./ghost";

const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--surface)", fontSize: "0.875rem", height: "22rem" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--ink)", padding: "0.75rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--ink-3)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": {
    backgroundColor: "color-mix(in srgb, var(--sunken) 70%, transparent)",
  },
  ".cm-ghost": { color: "var(--ink-3)", whiteSpace: "pre-wrap", fontStyle: "italic" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--accent-soft)",
  },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.controlKeyword], color: "var(--series-3)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--series-4)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--series-2)" },
  { tag: [tags.comment], color: "var(--ink-3)", fontStyle: "italic" },
  { tag: [tags.function(tags.variableName), tags.definition(tags.variableName)], color: "var(--series-1)" },
  { tag: [tags.className, tags.typeName], color: "var(--series-6)" },
]);

interface EditorProps extends GhostCalls {
  label: string;
  initial: string;
}

export function Editor({ label, initial, ...given }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const calls = useRef<GhostCalls>(given);
  calls.current = given;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the editor keeps its own text; it is made once
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const view = new EditorView({
      doc: initial,
      selection: { anchor: initial.length },
      root,
      parent: root as unknown as Element,
      extensions: [
        lineNumbers(),
        history(),
        drawSelection(),
        bracketMatching(),
        highlightActiveLine(),
        indentUnit.of("    "),
        python(),
        syntaxHighlighting(colours),
        look,
        ghostText({
          onTyped: (view) => calls.current.onTyped(view),
          onTaken: (view, text) => calls.current.onTaken(view, text),
          onDismissed: () => calls.current.onDismissed(),
        }),
        keymap.of([...defaultKeymap, ...historyKeymap]),
        EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
      ],
    });
    return () => view.destroy();
  }, []);
  return <div ref={host} className="editor" />;
}
