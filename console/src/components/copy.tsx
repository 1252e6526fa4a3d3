import { useState } from "react";
import { Button } from "./button";
import { Notice } from "./notice";

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <Button
      size="small"
      icon={copied ? "check" : "copy"}
      onClick={async () => {
        await copy(text);
        setCopied(true);
        setTimeout(() => setCopied(false), 2000);
      }}
    >
      {copied ? "Copied" : label}
    </Button>
  );
}

/** The clipboard's API exists over HTTPS and on localhost only; elsewhere the old way. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A secret that is shown this once. */
export function Secret({
  secret,
  label,
  about = "This secret is shown only once. Store it with your other secrets; it cannot be shown again.",
}: {
  secret: string;
  label: string;
  about?: string;
}) {
  return (
    <div className="stack-tight">
      <span className="field-label">{label}</span>
      <div className="secret">
        <code>{secret}</code>
        <CopyButton text={secret} />
      </div>
      <Notice tone="warn">{about}</Notice>
    </div>
  );
}

export function CodeBlock({ code, label }: { code: string; label: string }) {
  return (
    <section className="code-block" aria-label={label}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines are scrolled with the keyboard */}
      <pre tabIndex={0}>
        <code>{code}</code>
      </pre>
      <CopyButton text={code} />
    </section>
  );
}
