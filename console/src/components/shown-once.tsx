import { type ReactNode, useState } from "react";
import { Button } from "./button";
import { Dialog } from "./dialog";
import { Notice } from "./notice";

interface ShownOnceProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
}

/** What nobody can show again: it goes when somebody says that they have it, and asks before it goes any other way. */
export function ShownOnce({ title, onClose, children }: ShownOnceProps) {
  const [leaving, setLeaving] = useState(false);
  return (
    <Dialog title={title} onClose={() => setLeaving(true)}>
      <div className="dialog-body">
        {children}
        {leaving && (
          <Notice tone="bad" title="Close without keeping it?">
            The secret is then lost: it cannot be shown again.
          </Notice>
        )}
      </div>
      <div className="dialog-foot">
        {leaving && (
          <Button kind="danger" onClick={onClose}>
            Close anyway
          </Button>
        )}
        <Button kind="primary" onClick={onClose}>
          I have stored it
        </Button>
      </div>
    </Dialog>
  );
}
