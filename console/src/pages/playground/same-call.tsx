import { useState } from "react";
import { CodeBlock } from "../../components/copy";
import { Card } from "../../components/page";
import { curl, python } from "./snippets";

/** The same call from a shell and from a program. */
export function SameCall({
  kind,
  path,
  body,
  headers,
}: {
  kind: "chat" | "completions";
  path: string;
  body: Record<string, unknown>;
  headers?: Record<string, string>;
}) {
  const [language, setLanguage] = useState<"curl" | "python">("curl");
  if (body.model === "") {
    return (
      <Card title="The same call">
        <p className="quiet">Choose a key first, because the call names one of its models.</p>
      </Card>
    );
  }
  const code =
    language === "curl"
      ? curl(location.origin, path, body, headers)
      : python(location.origin, kind, body, headers);
  return (
    <Card
      title="The same call"
      about={
        <>
          With a key in the variable <code>SLIPSTREAM_API_KEY</code>: this page’s key, or a key of a project.
        </>
      }
    >
      <div className="tabs" role="tablist" aria-label="Language">
        {(["curl", "python"] as const).map((each) => (
          <button
            key={each}
            type="button"
            role="tab"
            className="tab"
            aria-selected={language === each}
            tabIndex={language === each ? 0 : -1}
            onClick={() => setLanguage(each)}
            onKeyDown={(event) => {
              if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
              setLanguage(each === "curl" ? "python" : "curl");
              const other =
                event.currentTarget.parentElement?.querySelector<HTMLElement>('[aria-selected="false"]');
              other?.focus();
            }}
          >
            {each === "curl" ? "curl" : "Python"}
          </button>
        ))}
      </div>
      <CodeBlock code={code} label={language === "curl" ? "As a curl command" : "As Python"} />
    </Card>
  );
}
