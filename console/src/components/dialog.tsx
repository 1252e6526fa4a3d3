/** Dialogs on the browser's own `<dialog>`: it holds the focus, closes by Escape and makes the rest inert. */
import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Button, IconButton } from "./button";
import { TextField } from "./field";
import { Refused } from "./notice";

interface DialogProps {
  title: string;
  onClose: () => void;
  wide?: boolean;
  children: ReactNode;
}

const FIRST_FIELD = ["input", "select", "textarea"].map((each) => `${each}:enabled`).join(", ");

/** Open as long as it is rendered. The focus goes to its first field, and in the end back to where it came from. */
export function Dialog({ title, onClose, wide, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    // the browser's own choice is the button that closes it, which comes first
    dialog?.querySelector<HTMLElement>(FIRST_FIELD)?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      className="dialog"
      data-size={wide ? "wide" : undefined}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClose={() => {
        // by a second Escape, which browsers let nobody prevent: whether it goes is for whoever rendered it to say
        const dialog = ref.current;
        if (dialog === null || dialog.open) return;
        dialog.showModal();
        onClose();
      }}
    >
      <div className="dialog-head">
        <h2 id={id}>{title}</h2>
        <IconButton icon="close" label="Close" onClick={onClose} />
      </div>
      {children}
    </dialog>
  );
}

interface FormDialogProps extends DialogProps {
  submit: string;
  onSubmit: () => void;
  busy: boolean;
  error?: unknown;
  danger?: boolean;
  disabled?: boolean;
}

export function FormDialog({
  submit,
  onSubmit,
  busy,
  error,
  danger,
  disabled,
  children,
  ...dialog
}: FormDialogProps) {
  return (
    <Dialog {...dialog}>
      <form
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          onSubmit();
        }}
      >
        <div className="dialog-body">{children}</div>
        <div className="dialog-foot">
          {error != null && <Refused error={error} />}
          <Button onClick={dialog.onClose}>Cancel</Button>
          <Button type="submit" kind={danger ? "danger-solid" : "primary"} busy={busy} disabled={disabled}>
            {submit}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

interface ConfirmProps {
  title: string;
  children: ReactNode;
  action: string;
  /** What has to be typed first, for what cannot be undone. */
  typed?: string;
  busy: boolean;
  error?: unknown;
  onConfirm: () => void;
  onClose: () => void;
}

export function Confirm({ title, children, action, typed, busy, error, onConfirm, onClose }: ConfirmProps) {
  const [text, setText] = useState("");
  return (
    <FormDialog
      title={title}
      submit={action}
      danger
      busy={busy}
      error={error}
      disabled={typed !== undefined && text !== typed}
      onSubmit={onConfirm}
      onClose={onClose}
    >
      <div>{children}</div>
      {typed !== undefined && (
        <TextField
          label={
            <>
              Type <code>{typed}</code> to go on
            </>
          }
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
      )}
    </FormDialog>
  );
}
