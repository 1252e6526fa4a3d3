/** What stands around every page of somebody signed in. */
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useMatchRoute, useNavigate, useParams, useRouterState } from "@tanstack/react-router";
import { Fragment, type ReactNode, useEffect, useRef, useState } from "react";
import { api, read } from "../api/client";
import { signOut } from "../api/session";
import { IconButton } from "../components/button";
import { Icon, Mark } from "../components/icon";
import { Menu, MenuItem, MenuLabel, MenuLine } from "../components/menu";
import { Empty } from "../components/notice";
import { Page } from "../components/page";
import { useToasts } from "../components/toasts";
import { Boundary } from "./boundary";
import { type Destination, isOperators, type Mode, modeOf, NAVIGATION } from "./navigation";
import { useKeepSession, useMyself } from "./session";
import { Switcher } from "./switcher";
import { type Choice, choose, useChoice } from "./theme";
import { badgeOf } from "./troubles";
import { useTroubles } from "./use-troubles";

/** Destinations below which others lie: they are current only themselves. */
const WHOLE = ["/org/$organizationId", "/operations"];

const KEPT_ORGANIZATION = "slipstream.organization";

/** The organization that is looked at: the address's, else the one looked at last, else one's own. */
export function useOrganizationId(): string {
  const myself = useMyself();
  const params = useParams({ strict: false }) as { organizationId?: string };
  const kept = myself.operator ? sessionStorage.getItem(KEPT_ORGANIZATION) : null;
  const id = params.organizationId ?? kept ?? myself.organization.id;
  useEffect(() => sessionStorage.setItem(KEPT_ORGANIZATION, id), [id]);
  return id;
}

/** The mode of a page; of a page of both, that of the one before. */
function useMode(place: string, operator: boolean): Mode {
  const last = useRef<Mode>(operator ? "deployment" : "organization");
  last.current = (operator && modeOf(place)) || last.current;
  return last.current;
}

export function Shell() {
  const [open, setOpen] = useState(false);
  const place = useRouterState({ select: (state) => state.location.pathname });
  // biome-ignore lint/correctness/useExhaustiveDependencies: on a phone the menu closes when one has gone somewhere
  useEffect(() => setOpen(false), [place]);
  useEffect(() => {
    if (!open) return;
    const close = (event: KeyboardEvent) => event.key === "Escape" && setOpen(false);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [open]);
  const organizationId = useOrganizationId();
  const { operator } = useMyself();
  const mode = useMode(place, operator);
  return (
    <>
      <a className="skip-link" href="#main">
        Skip to the content
      </a>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a click beside the open menu closes it, as Escape does */}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: Escape is heard above */}
      <div
        className="shell"
        data-menu={open ? "open" : undefined}
        onClick={(event) => event.target === event.currentTarget && setOpen(false)}
      >
        <header className="topbar">
          <IconButton icon="menu" label="Menu" aria-expanded={open} onClick={() => setOpen(true)} />
          <Link to="/" className="brand">
            <Mark /> Slipstream
          </Link>
        </header>
        <aside className="sidebar" aria-label="Sidebar">
          <Link to="/" className="brand">
            <Mark /> Slipstream
          </Link>
          {mode === "organization" && <Switcher organizationId={organizationId} />}
          <Navigation organizationId={organizationId} mode={mode} />
          <div className="sidebar-foot">
            <AccountMenu />
          </div>
        </aside>
        <main className="main" id="main" tabIndex={-1}>
          <div className="main-inner">
            <Boundary key={place}>{isOperators(place) && !operator ? <ForOperators /> : <Outlet />}</Boundary>
          </div>
        </main>
      </div>
    </>
  );
}

/** Instead of a page that is the deployment's. */
function ForOperators() {
  const { organization } = useMyself();
  return (
    <Page title="For operators">
      <Empty
        title="This page is for operators of the deployment"
        action={
          <Link className="button" to="/org/$organizationId" params={{ organizationId: organization.id }}>
            To {organization.name}
          </Link>
        }
      >
        You are signed in as a member of {organization.name}, whose own pages are in the menu.
      </Empty>
    </Page>
  );
}

const MODES: [Mode, string][] = [
  ["organization", "Organization"],
  ["deployment", "Deployment"],
];

function Navigation({ organizationId, mode }: { organizationId: string; mode: Mode }) {
  const { can, operator } = useMyself();
  const troubles = useTroubles();
  const seen = (of: Mode) =>
    NAVIGATION[of].filter(
      (each) => (!each.operator || operator) && (each.needs === undefined || can(each.needs)),
    );
  const link = (each: Destination, current: boolean | undefined, children: ReactNode) => (
    <Link
      className={current === undefined ? "nav-link" : "nav-mode"}
      data-current={current}
      // biome-ignore lint/suspicious/noExplicitAny: the list is data, the router's types are of literals
      to={each.to as any}
      params={{ organizationId } as never}
      activeOptions={{ exact: WHOLE.includes(each.to), includeSearch: false }}
    >
      {children}
    </Link>
  );
  const list = (folded: boolean) => (
    <ul>
      {seen(mode)
        .filter((each) => Boolean(each.folded) === folded)
        .map((each) => (
          <li key={each.to}>
            {link(
              each,
              undefined,
              <>
                <Icon name={each.icon} />
                {each.label}
                <Warned trouble={badgeOf(troubles, each.to)} />
              </>,
            )}
          </li>
        ))}
    </ul>
  );
  return (
    <nav aria-label="Main">
      {operator && (
        <div className="nav-modes">
          {MODES.map(([of, label]) => {
            const first = seen(of)[0];
            return first && <Fragment key={of}>{link(first, of === mode, label)}</Fragment>;
          })}
        </div>
      )}
      {list(false)}
      {seen(mode).some((each) => each.folded) && (
        <Folded key={mode} places={seen(mode).flatMap((each) => (each.folded ? [each.to] : []))}>
          {list(true)}
        </Folded>
      )}
    </nav>
  );
}

/** Open where one of its pages is looked at, or by hand. */
function Folded({ places, children }: { places: string[]; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  const matches = useMatchRoute();
  // biome-ignore lint/suspicious/noExplicitAny: the list is data, the router's types are of literals
  const holds = places.some((to) => matches({ to: to as any, fuzzy: true }) !== false);
  return (
    <details
      className="nav-more"
      open={open || holds}
      onToggle={(event) => setOpen(event.currentTarget.open)}
    >
      <summary>More</summary>
      {children}
    </details>
  );
}

/** The number of problems on a destination's page. */
function Warned({ trouble }: { trouble: ReturnType<typeof badgeOf> }) {
  if (!trouble) return null;
  return (
    <span className="badge nav-warned" data-tone={trouble.tone}>
      {trouble.many}
      <span className="visually-hidden"> {trouble.many === 1 ? "problem" : "problems"}</span>
    </span>
  );
}

const CHOICES: [Choice, string][] = [
  ["system", "Same as the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

function AccountMenu() {
  const { account, role, organization } = useMyself();
  const keep = useKeepSession();
  const navigate = useNavigate();
  const choice = useChoice();
  const { fail } = useToasts();
  return (
    <Menu
      trigger={
        <button type="button" className="switcher">
          <span className="switcher-mark" aria-hidden="true">
            {account.email.slice(0, 1).toUpperCase()}
          </span>
          <span>
            <b>{account.name || account.email}</b>
            <small>
              {role} in {organization.name}
            </small>
            <span className="visually-hidden">Account, appearance, sign out</span>
          </span>
          <Icon name="updown" />
        </button>
      }
    >
      <MenuItem asChild className="menu-item">
        <Link to="/account">Account and sessions</Link>
      </MenuItem>
      <MenuLine />
      <MenuLabel className="menu-label">Appearance</MenuLabel>
      {CHOICES.map(([value, label]) => (
        <MenuItem key={value} className="menu-item" onSelect={() => choose(value)}>
          {label}
          {choice === value && <Icon name="check" />}
        </MenuItem>
      ))}
      <MenuLine />
      <MenuItem
        className="menu-item"
        onSelect={() =>
          void signOut().then((session) => {
            keep(session);
            void navigate({ to: "/sign-in" });
          }, fail)
        }
      >
        Sign out
      </MenuItem>
    </Menu>
  );
}

/** One organization, by its id. */
export function useOrganization(organizationId: string) {
  return useQuery({
    queryKey: ["organization", organizationId],
    queryFn: () =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}", {
          params: { path: { organization_id: organizationId } },
        }),
      ),
  });
}
