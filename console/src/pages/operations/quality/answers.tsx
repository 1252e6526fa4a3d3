/** Texts that models answered, one beside the other. */
import type { ReactNode } from "react";

export function Answers({ children }: { children: ReactNode }) {
  return <div className="answers">{children}</div>;
}

export function Answer({ title, text, children }: { title: ReactNode; text: string; children?: ReactNode }) {
  return (
    <section className="answer">
      <div className="row-apart">
        <h3>{title}</h3>
        {children}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long texts are scrolled with the keyboard */}
      <pre className="answer-text" tabIndex={0}>
        {text === "" ? "(no text)" : text}
      </pre>
    </section>
  );
}
