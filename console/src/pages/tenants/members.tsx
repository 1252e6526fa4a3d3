import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Secret } from "../../components/copy";
import { FormDialog } from "../../components/dialog";
import { TextField } from "../../components/field";
import { Empty } from "../../components/notice";
import { ShownOnce } from "../../components/shown-once";
import { FullTime } from "../../components/time";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { PrincipalForm, Principals } from "./principals";

type Member = Schemas["Member"];
const route = getRouteApi("/signed/org/$organizationId/members");

/** Invited: nobody has signed in as this member yet. */
function stateOf(member: Member): "disabled" | "active" | "invited" {
  if (member.disabled_at) return "disabled";
  return member.has_account ? "active" : "invited";
}

type Open = { what: "invite"; member: Member } | { what: "link"; url: string; expires_at: string };

export function Members() {
  const { organizationId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const { can, account } = useMyself();
  const [open, setOpen] = useState<Open | null>(null);
  const path = { organization_id: organizationId };
  const list = useList(["members", organizationId, search], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/members", {
        params: { path, query: { limit: 100, cursor, ...search } },
      }),
    ),
  );
  const link = useAction(
    (id: string) =>
      read(api.POST("/admin/v1/members/{member_id}/console-link", { params: { path: { member_id: id } } })),
    {
      then: (made) =>
        setOpen({ what: "link", url: new URL(made.url, location.origin).href, expires_at: made.expires_at }),
    },
  );
  const writes = can("members.write", organizationId);
  return (
    <Principals<Member>
      title="Members"
      about="People with access to this organization, and their roles."
      csvName="members"
      list={list}
      writes={writes}
      make="Add member"
      columns={[
        {
          id: "name",
          heading: "Name",
          value: (row) => row.name,
          cell: (row) => (
            <span className="row">
              <span className="primary-cell">{row.name}</span>
              {row.id === account.member_id && <Badge tone="accent">you</Badge>}
            </span>
          ),
        },
        { id: "email", heading: "Email", value: (row) => row.email },
      ]}
      created="Added"
      stateOf={stateOf}
      actions={(member) => [
        { label: "Link to sign in…", onSelect: () => setOpen({ what: "invite", member }) },
      ]}
      toggle={(member_id, disabled) =>
        read(
          api.PATCH("/admin/v1/members/{member_id}", { params: { path: { member_id } }, body: { disabled } }),
        )
      }
      remove={(member_id) =>
        read(api.DELETE("/admin/v1/members/{member_id}", { params: { path: { member_id } } }))
      }
      removed="The member and all their admin keys are removed."
      ends="All their admin keys and sessions end at once. Their actions stay in the audit log."
      filter={{ label: "Email", value: search.email, set: (email) => set({ email }) }}
      chosenRole={search.role}
      setRole={(role) => set({ role })}
      empty={(add) =>
        search.email || search.role ? (
          <Empty title="No member matches">Clear the filters to see all members.</Empty>
        ) : (
          <Empty title="No members" action={add}>
            {add
              ? "Add a member, who gets a link to choose a password."
              : "Members of another organization administer this one."}
          </Empty>
        )
      }
      form={(member, onClose) => (
        <MemberForm
          organizationId={organizationId}
          member={member}
          onClose={onClose}
          onMade={(made) => member === null && link.mutate(made.id)}
        />
      )}
    >
      {open?.what === "invite" && (
        <FormDialog
          title={`Make a link for ${open.member.name}?`}
          submit="Make the link"
          busy={link.isPending}
          error={link.error}
          onSubmit={() => link.mutate(open.member.id)}
          onClose={() => setOpen(null)}
        >
          <p>
            The person who opens it chooses a password for {open.member.email} and is signed in. Earlier
            unused links stop working.
          </p>
        </FormDialog>
      )}
      {open?.what === "link" && (
        <ShownOnce title="Link to sign in" onClose={() => setOpen(null)}>
          <p>
            Send the link to the member alone: the person who opens it chooses the password. It works once,
            until <FullTime at={open.expires_at} />.
          </p>
          <Secret
            secret={open.url}
            label="Link"
            about="The link is shown only once. You can make a new one at any time; the earlier link then stops working."
          />
        </ShownOnce>
      )}
    </Principals>
  );
}

function MemberForm({
  organizationId,
  member,
  onClose,
  onMade,
}: {
  organizationId: string;
  member: Member | null;
  onClose: () => void;
  onMade: (made: Member) => void;
}) {
  const [email, setEmail] = useState("");
  return (
    <PrincipalForm<Member>
      title={member ? `Change ${member.name}` : "Add member"}
      submit={member ? "Save" : "Add"}
      row={member}
      firstRole="developer"
      save={(body) =>
        member === null
          ? read(
              api.POST("/admin/v1/organizations/{organization_id}/members", {
                params: { path: { organization_id: organizationId } },
                body: { email, ...body },
              }),
            )
          : read(
              api.PATCH("/admin/v1/members/{member_id}", {
                params: { path: { member_id: member.id } },
                body,
              }),
            )
      }
      done={(made) => (member ? `${made.name} is changed.` : `${made.name} is added.`)}
      onMade={onMade}
      onClose={onClose}
    >
      {member === null && (
        <TextField
          label="Email"
          type="email"
          required
          autoFocus
          value={email}
          onChange={(event) => setEmail(event.currentTarget.value)}
        />
      )}
    </PrincipalForm>
  );
}
