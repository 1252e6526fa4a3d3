/** Ghost text for CodeMirror: what a model would write next, grey behind the cursor; Tab takes it, Escape does not. */
import { EditorState, type Extension, Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, keymap, WidgetType } from "@codemirror/view";

export interface Suggestion {
  at: number;
  text: string;
}

export const suggest = StateEffect.define<Suggestion | null>();

class Ghost extends WidgetType {
  constructor(readonly text: string) {
    super();
  }

  override eq(other: Ghost): boolean {
    return other.text === this.text;
  }

  override toDOM(): HTMLElement {
    const element = document.createElement("span");
    element.className = "cm-ghost";
    element.textContent = this.text;
    return element;
  }
}

/** What is suggested. Text that is typed as suggested shortens it; any other change ends it. */
export const suggestion = StateField.define<Suggestion | null>({
  create: () => null,
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(suggest)) return effect.value;
    if (value === null) return null;
    if (transaction.docChanged) {
      let typed: string | null = null;
      transaction.changes.iterChanges((from, to, _, __, inserted) => {
        typed = typed === null && from === value.at && to === value.at ? inserted.toString() : "\0";
      });
      if (typed === null || !value.text.startsWith(typed) || typed === value.text) return null;
      return { at: value.at + (typed as string).length, text: value.text.slice((typed as string).length) };
    }
    return transaction.selection && transaction.newSelection.main.head !== value.at ? null : value;
  },
  provide: (field) =>
    EditorView.decorations.from(
      field,
      (value): DecorationSet =>
        value === null || value.text === ""
          ? Decoration.none
          : Decoration.set([Decoration.widget({ widget: new Ghost(value.text), side: 1 }).range(value.at)]),
    ),
});

export interface GhostCalls {
  /** After each change that somebody made and that the suggestion did not foresee. */
  onTyped: (view: EditorView) => void;
  onTaken: (view: EditorView, text: string) => void;
  onDismissed: () => void;
}

function take(view: EditorView, { onTaken }: GhostCalls): boolean {
  const shown = view.state.field(suggestion);
  if (shown === null) return false;
  view.dispatch({
    changes: { from: shown.at, insert: shown.text },
    selection: { anchor: shown.at + shown.text.length },
    effects: suggest.of(null),
  });
  onTaken(view, shown.text);
  return true;
}

function dismiss(view: EditorView, { onDismissed }: GhostCalls): boolean {
  if (view.state.field(suggestion) === null) return false;
  view.dispatch({ effects: suggest.of(null) });
  onDismissed();
  return true;
}

export function ghostText(calls: GhostCalls): Extension {
  return [
    suggestion,
    Prec.highest(
      keymap.of([
        { key: "Tab", run: (view) => take(view, calls) },
        { key: "Escape", run: (view) => dismiss(view, calls) },
      ]),
    ),
    EditorView.updateListener.of((update) => {
      const typed = update.transactions.some(
        (each) => each.isUserEvent("input") || each.isUserEvent("delete"),
      );
      if (typed && update.state.field(suggestion) === null) calls.onTyped(update.view);
    }),
    EditorState.tabSize.of(4),
  ];
}
