import { Fragment, type ReactNode, useEffect, useRef } from "react";

interface PageProps {
  title: string;
  about?: ReactNode;
  actions?: ReactNode;
  crumbs?: ReactNode[];
  children: ReactNode;
}

/** A page: its heading takes the focus when one comes from another page, so that a screen reader reads it. */
export function Page({ title, about, actions, crumbs, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Slipstream`;
  }, [title]);
  useEffect(() => {
    const inside = document.activeElement?.closest("dialog, input, select, textarea");
    if (!inside) heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <>
      <header className="page-head">
        <div>
          {crumbs && (
            <nav aria-label="Breadcrumb">
              <ol className="crumbs">
                {crumbs.map((crumb, place) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: crumbs never change places
                  <Fragment key={place}>
                    <li>{crumb}</li>
                  </Fragment>
                ))}
              </ol>
            </nav>
          )}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {about && <p>{about}</p>}
        </div>
        {actions && <div className="row">{actions}</div>}
      </header>
      {children}
    </>
  );
}

export function Card({
  title,
  about,
  actions,
  children,
}: {
  title?: ReactNode;
  about?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}) {
  return (
    <section className="card">
      {(title || actions) && (
        <header className="card-head">
          <div>
            {title && <h2>{title}</h2>}
            {about && <p>{about}</p>}
          </div>
          {actions && <div className="row">{actions}</div>}
        </header>
      )}
      <div className="card-body">{children}</div>
    </section>
  );
}

export interface Figure {
  name: string;
  value: ReactNode;
  note?: ReactNode;
}

/** An amount may be longer than its field is wide: its currency then stands on a line of its own. */
function breakable(text: string): ReactNode {
  const [size, currency] = text.split("\u00a0");
  return currency === undefined ? (
    text
  ) : (
    <>
      {`${size}\u00a0`}
      <wbr />
      {currency}
    </>
  );
}

export function Stats({ figures }: { figures: Figure[] }) {
  return (
    <dl className="stats">
      {figures.map((figure) => (
        <div className="stat" key={figure.name}>
          <dt>{figure.name}</dt>
          <dd>
            {typeof figure.value === "string" ? breakable(figure.value) : figure.value}
            {figure.note && (
              <>
                {" "}
                <small>{figure.note}</small>
              </>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Names and values. A name without a value (null, false, "", 0) is left out. */
export function Facts({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {facts
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
    </dl>
  );
}
