import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { sentenceOf } from "../../api/error";
import { acceptLink, previewLink } from "../../api/session";
import { Button } from "../../components/button";
import { TextField } from "../../components/field";
import { Loading, Notice } from "../../components/notice";
import { FullTime } from "../../components/time";
import { fragment } from "../../shell/links";
import { useKeepSession } from "../../shell/session";
import { EntryFrame } from "./frame";

const TITLES = {
  first: "Welcome to Slipstream",
  invitation: "Join your organization",
  reset: "Choose a new password",
};

export function Welcome() {
  const [token] = useState(() => fragment("token") ?? "");
  const preview = useQuery({
    queryKey: ["welcome", token],
    queryFn: () => previewLink(token),
    enabled: token !== "",
    retry: false,
  });
  const keep = useKeepSession();
  const navigate = useNavigate();
  const [form, setForm] = useState({ email: "", name: "", password: "", again: "" });
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);

  if (token === "" || preview.error) {
    return (
      <EntryFrame title="This link does not work">
        <Notice tone="bad">
          {preview.error ? sentenceOf(preview.error) : "The address has no token. Copy the whole link."}
        </Notice>
        <Link to="/sign-in" className="button">
          Open the sign-in page
        </Link>
      </EntryFrame>
    );
  }
  if (!preview.data) return <Loading label="Reading the link" />;
  const { kind, email, name, organization, expires_at } = preview.data;
  const different = form.again !== "" && form.again !== form.password;
  const change = (field: keyof typeof form) => (event: { currentTarget: HTMLInputElement }) => {
    const value = event.currentTarget.value;
    setForm((all) => ({ ...all, [field]: value }));
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (form.again !== form.password) return;
    setBusy(true);
    setError(null);
    try {
      keep(
        await acceptLink({
          token,
          password: form.password,
          ...(email === null ? { email: form.email } : {}),
          ...(name === null && form.name !== "" ? { name: form.name } : {}),
        }),
      );
      await navigate({ to: "/", replace: true });
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <EntryFrame
      title={TITLES[kind]}
      about={
        <>
          {organization && <>For {organization}. </>}This link works once, until <FullTime at={expires_at} />.
        </>
      }
    >
      <form className="stack" onSubmit={(event) => void submit(event)}>
        {email === null ? (
          <>
            <TextField
              label="Email"
              type="email"
              required
              autoFocus
              autoComplete="username"
              value={form.email}
              onChange={change("email")}
            />
            {name === null && (
              <TextField label="Name" value={form.name} onChange={change("name")} autoComplete="name" />
            )}
          </>
        ) : (
          <TextField label="Email" type="email" value={email} readOnly autoComplete="username" />
        )}
        <TextField
          label="Password"
          type="password"
          required
          autoComplete="new-password"
          hint="At least 12 characters; length matters more than special characters."
          value={form.password}
          onChange={change("password")}
        />
        <TextField
          label="Repeat the password"
          type="password"
          required
          autoComplete="new-password"
          error={different ? "The passwords differ." : null}
          value={form.again}
          onChange={change("again")}
        />
        {error != null && <Notice tone="bad">{sentenceOf(error)}</Notice>}
        <Button type="submit" kind="primary" busy={busy}>
          {kind === "reset" ? "Set the password" : "Begin"}
        </Button>
      </form>
    </EntryFrame>
  );
}
