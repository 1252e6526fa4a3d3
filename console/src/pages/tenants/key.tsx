import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read } from "../../api/client";
import { EVERY_MS } from "../../api/live";
import { StateBadge } from "../../components/badge";
import { Card, Facts, Page } from "../../components/page";
import { Pending } from "../../components/pending";
import { FullTime, Time } from "../../components/time";
import { useMyself } from "../../shell/session";
import { stillOpens } from "./earlier-secret";
import { KeyActions } from "./key-actions";
import { LimitsOf } from "./limits-of";

const route = getRouteApi("/signed/org/$organizationId/projects/$projectId/keys/$keyId");

export function KeyPage() {
  const { organizationId } = route.useParams();
  return useMyself().can("keys.read", organizationId) ? <Key /> : <LimitsOfKey />;
}

/** For a role that sets limits and does not read keys. */
function LimitsOfKey() {
  const { organizationId, keyId } = route.useParams();
  return (
    <Page title="Key" about="Your role can see the key’s limits, not the key itself.">
      <LimitsOf level="key" subjectId={keyId} organizationId={organizationId} />
    </Page>
  );
}

function Key() {
  const { organizationId, projectId, keyId } = route.useParams();
  const key = useQuery({
    queryKey: ["key", keyId],
    refetchInterval: EVERY_MS, // "Last used" and counters go on while the page is open
    queryFn: () => read(api.GET("/admin/v1/keys/{key_id}", { params: { path: { key_id: keyId } } })),
  });
  if (!key.data) return <Pending title="Key" query={key} />;
  const earlier = key.data.state === "active" ? stillOpens(key.data.previous_expires_at) : null;
  return (
    <Page
      title={key.data.name}
      crumbs={[
        <Link key="projects" to="/org/$organizationId/projects" params={{ organizationId }}>
          Projects
        </Link>,
        <Link
          key="project"
          to="/org/$organizationId/projects/$projectId"
          params={{ organizationId, projectId }}
        >
          Keys
        </Link>,
      ]}
      actions={
        <>
          <Link
            className="button"
            to="/org/$organizationId/requests"
            params={{ organizationId }}
            search={{ key_id: keyId }}
          >
            Requests
          </Link>
          <Link
            className="button"
            to="/org/$organizationId/usage"
            params={{ organizationId }}
            search={{ key_id: keyId }}
          >
            Usage
          </Link>
          <KeyActions apiKey={key.data} organizationId={organizationId} />
        </>
      }
    >
      <div className="stack">
        <Card>
          <Facts
            facts={[
              ["Key", <code key="display">{key.data.display}</code>],
              ["State", <StateBadge key="state" state={key.data.state} />],
              ["Scopes", key.data.scopes?.join(", ") ?? "all"],
              ["Last used", <Time key="used" at={key.data.last_used_at} />],
              ["Made", <Time key="made" at={key.data.created_at} />],
              ["Ends", <Time key="ends" at={key.data.expires_at} />],
              [
                "Earlier secret valid until",
                earlier ? (
                  <FullTime key="old" at={earlier} />
                ) : (
                  <Time key="old" at={null} none="no earlier secret is valid" />
                ),
              ],
            ]}
          />
        </Card>
        <LimitsOf level="key" subjectId={keyId} organizationId={organizationId} />
      </div>
    </Page>
  );
}
