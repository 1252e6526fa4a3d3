import { getRouteApi, useRouter } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import { ApiError } from "../../api/error";
import { signIn } from "../../api/session";
import { Button } from "../../components/button";
import { TextField } from "../../components/field";
import { ErrorNotice, Loading, Notice, Refused } from "../../components/notice";
import { fragment } from "../../shell/links";
import { useConsoleSession, useKeepSession } from "../../shell/session";
import { ChooseOrganization } from "./choose";
import { EntryFrame } from "./frame";
import { nextOf, safeNext } from "./next";
import { refusalOf } from "./refusals";

const route = getRouteApi("/sign-in");

export function SignIn() {
  const asked = route.useSearch().next;
  const next = fragment("choose") === null ? safeNext(asked) : nextOf(fragment("next"));
  const session = useConsoleSession();
  const keep = useKeepSession();
  const router = useRouter();
  const signedIn = session.data?.signed_in != null;
  // the address with its filters, as it was asked for
  useEffect(() => {
    if (signedIn) router.history.replace(`/console${next}`);
  }, [signedIn, next, router]);
  const [form, setForm] = useState({ email: "", password: "", totp: "", organization_id: "" });
  const [asks, setAsks] = useState<{ totp: boolean; organization: boolean }>({
    totp: false,
    organization: false,
  });
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const refusal = refusalOf(fragment("error"));

  if (session.isPending) return <Loading label="Loading the sign-in page" />;
  if (session.error) {
    return (
      <main className="entry">
        <ErrorNotice error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  }
  if (signedIn) return <Loading label="Loading the console" />;
  if (fragment("choose") !== null) return <ChooseOrganization />;
  const { methods } = session.data;

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const { email, password, totp, organization_id } = form;
      keep(
        await signIn({
          email,
          password,
          ...(totp === "" ? {} : { totp }),
          ...(organization_id === "" ? {} : { organization_id }),
        }),
      );
    } catch (thrown) {
      if (thrown instanceof ApiError && thrown.code === "totp_required")
        setAsks((all) => ({ ...all, totp: true }));
      if (thrown instanceof ApiError && thrown.param === "organization_id") {
        setAsks((all) => ({ ...all, organization: true }));
      }
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  const change = (name: keyof typeof form) => (event: { currentTarget: HTMLInputElement }) => {
    const value = event.currentTarget.value;
    setForm((all) => ({ ...all, [name]: value }));
  };
  const codeIsNew = error instanceof ApiError && error.code === "totp_required" && form.totp === "";

  return (
    <EntryFrame title="Sign in">
      {refusal && <Notice tone="bad">{refusal}</Notice>}
      {methods.password && (
        <form className="stack" onSubmit={(event) => void submit(event)}>
          <TextField
            label="Email"
            type="email"
            name="email"
            autoComplete="username"
            required
            autoFocus
            value={form.email}
            onChange={change("email")}
          />
          <TextField
            label="Password"
            type="password"
            name="password"
            autoComplete="current-password"
            required
            value={form.password}
            onChange={change("password")}
          />
          {asks.totp && (
            <TextField
              label="Code from your second factor"
              hint="Six digits from your authenticator, or a recovery code."
              name="totp"
              autoComplete="one-time-code"
              autoFocus
              value={form.totp}
              onChange={change("totp")}
            />
          )}
          {asks.organization && (
            <TextField
              label="Organization's id"
              name="organization_id"
              value={form.organization_id}
              onChange={change("organization_id")}
            />
          )}
          {error != null && !codeIsNew && <Refused error={error} />}
          <Button type="submit" kind="primary" busy={busy}>
            Sign in
          </Button>
        </form>
      )}
      {methods.oidc && (
        <a
          className="button"
          href={`${methods.oidc.start}?next=${encodeURIComponent(`/console${next === "/" ? "/" : next}`)}`}
        >
          Continue with {methods.oidc.name}
        </a>
      )}
      <p className="quiet small">
        No account yet? Ask an administrator of your organization for a link. For the first account of a
        deployment, run <code>slipstream console open</code> on the gateway’s machine. If you are locked out,
        run <code>slipstream console accounts reset EMAIL</code> there.
      </p>
    </EntryFrame>
  );
}
