import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { sentenceOf } from "../../api/error";
import {
  changePassword,
  endOtherSessions,
  endSession,
  leaveOrganization,
  type OwnSession,
  readSessions,
} from "../../api/session";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm } from "../../components/dialog";
import { TextField } from "../../components/field";
import { Empty, ErrorNotice, Loading, Notice } from "../../components/notice";
import { Card, Facts, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { useKeepSession, useMyself } from "../../shell/session";
import { SecondFactor } from "./second-factor";

export function AccountPage() {
  const { account, organization, role } = useMyself();
  return (
    <Page title="Account" about="Your sign-in methods and your open sessions.">
      <div className="stack">
        <Card title="You">
          <Facts
            facts={[
              ["Name", account.name],
              ["Email", account.email],
              ["Organization", organization.name],
              ["Role", role],
              ["Since", <Time key="since" at={account.created_at} />],
            ]}
          />
        </Card>
        <div className="grid-2">
          {account.has_password && <Password />}
          {account.has_password && <SecondFactor />}
        </div>
        <Sessions />
        <Leave />
      </div>
    </Page>
  );
}

function Password() {
  const keep = useKeepSession();
  const [form, setForm] = useState({ current_password: "", new_password: "" });
  const change = useAction(changePassword, {
    done: "The password is changed. All other sessions have ended.",
    stale: ["sessions"],
    quiet: true,
    then: (session) => {
      keep(session);
      setForm({ current_password: "", new_password: "" });
    },
  });
  return (
    <Card title="Password" about="A new password ends all other sessions.">
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate(form);
        }}
      >
        <input type="hidden" autoComplete="username" />
        <TextField
          label="Current password"
          type="password"
          autoComplete="current-password"
          required
          value={form.current_password}
          onChange={(event) => setForm({ ...form, current_password: event.currentTarget.value })}
        />
        <TextField
          label="New password"
          type="password"
          autoComplete="new-password"
          required
          value={form.new_password}
          onChange={(event) => setForm({ ...form, new_password: event.currentTarget.value })}
        />
        {change.error && <Notice tone="bad">{sentenceOf(change.error)}</Notice>}
        <div>
          <Button type="submit" kind="primary" busy={change.isPending}>
            Change the password
          </Button>
        </div>
      </form>
    </Card>
  );
}

function Leave() {
  const { organization } = useMyself();
  const keep = useKeepSession();
  const [asked, setAsked] = useState(false);
  const leave = useAction(leaveOrganization, { quiet: true, then: keep });
  return (
    <Card
      title={`Leave ${organization.name}`}
      about="This ends your membership, and your admin keys and sessions in it."
    >
      <div>
        <Button kind="danger" onClick={() => setAsked(true)}>
          Leave the organization
        </Button>
      </div>
      {asked && (
        <Confirm
          title={`Leave ${organization.name}?`}
          action="Leave"
          busy={leave.isPending}
          error={leave.error}
          onConfirm={() => leave.mutate(undefined)}
          onClose={() => setAsked(false)}
        >
          Your admin keys and sessions there end at once. To return, a member of the organization has to add
          you.
        </Confirm>
      )}
    </Card>
  );
}

function Sessions() {
  const sessions = useQuery({ queryKey: ["sessions"], queryFn: readSessions });
  const end = useAction(endSession, { done: "The session has ended.", stale: ["sessions"] });
  const endOthers = useAction(endOtherSessions, {
    done: ({ ended }) => (ended === 1 ? "One session has ended." : `${ended} sessions have ended.`),
    stale: ["sessions"],
  });
  if (sessions.error) return <ErrorNotice error={sessions.error} retry={() => void sessions.refetch()} />;
  if (!sessions.data) return <Loading />;
  const columns: Column<OwnSession>[] = [
    {
      id: "browser",
      heading: "Browser",
      value: (row) => row.user_agent,
      cell: (row) => (
        <span className="row">
          <span className="wrap">{browserOf(row.user_agent)}</span>
          {row.current && <Badge tone="accent">this one</Badge>}
        </span>
      ),
    },
    { id: "network", heading: "Network", value: (row) => row.network },
    { id: "method", heading: "Signed in by", value: (row) => row.method },
    {
      id: "created_at",
      heading: "Since",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "last_seen_at",
      heading: "Last seen",
      value: (row) => row.last_seen_at,
      cell: (row) => <Time at={row.last_seen_at} />,
    },
    {
      id: "end",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) =>
        row.current ? null : (
          <Button size="small" kind="danger" onClick={() => end.mutate(row.id)}>
            End
          </Button>
        ),
    },
  ];
  return (
    <section className="stack-tight">
      <div className="row-apart">
        <h2>Sessions</h2>
        {sessions.data.data.length > 1 && (
          <Button size="small" busy={endOthers.isPending} onClick={() => endOthers.mutate(undefined)}>
            End all other sessions
          </Button>
        )}
      </div>
      <Table
        label="Sessions"
        columns={columns}
        list={sessions.data.data}
        rowKey={(row) => row.id}
        empty={<Empty title="No sessions" />}
      />
    </section>
  );
}

/** "Chrome on Linux" of a user agent. */
function browserOf(agent: string | null): string {
  if (!agent) return "unknown";
  const browser = ["Edg", "Firefox", "Chrome", "Safari"].find((name) => agent.includes(name));
  const system = ["Windows", "Android", "iPhone", "Mac OS X", "Linux"].find((name) => agent.includes(name));
  return browser === undefined
    ? agent.slice(0, 60)
    : `${browser.replace("Edg", "Edge")}${system ? ` on ${system.replace("Mac OS X", "macOS")}` : ""}`;
}
