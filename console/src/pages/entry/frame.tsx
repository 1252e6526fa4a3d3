import { type ReactNode, useEffect } from "react";
import { Mark } from "../../components/icon";

/** A page before one is signed in. */
export function EntryFrame({
  title,
  about,
  children,
}: {
  title: string;
  about?: ReactNode;
  children: ReactNode;
}) {
  useEffect(() => {
    document.title = `${title} · Slipstream`;
  }, [title]);
  return (
    <main className="entry">
      <div className="entry-card">
        <div className="brand">
          <Mark /> Slipstream
        </div>
        <div>
          <h1>{title}</h1>
          {about && <p className="quiet">{about}</p>}
        </div>
        {children}
      </div>
    </main>
  );
}
