import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { FormDialog } from "../../components/dialog";
import { ChoiceField, TextField } from "../../components/field";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { useMyself } from "../../shell/session";
import { NewSecret } from "./key-form";

type Webhook = Schemas["Webhook"];
const route = getRouteApi("/signed/org/$organizationId/webhooks");
const EVENTS = [
  "budget.threshold_reached",
  "budget.exhausted",
  "prefix.share_dropped",
  "evals.night_failed",
] as const satisfies Schemas["EventType"][];

export function Webhooks() {
  const { organizationId } = route.useParams();
  const { can } = useMyself();
  const [making, setMaking] = useState(false);
  const list = useList(["webhooks", organizationId], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/webhooks", {
        params: { path: { organization_id: organizationId }, query: { limit: 100, cursor } },
      }),
    ),
  );
  const columns: Column<Webhook>[] = [
    {
      id: "url",
      heading: "Address",
      value: (row) => row.url,
      cell: (row) => (
        <Link
          className="primary-cell wrap"
          to="/org/$organizationId/webhooks/$webhookId"
          params={{ organizationId, webhookId: row.id }}
        >
          {row.url}
        </Link>
      ),
    },
    { id: "description", heading: "What for", value: (row) => row.description },
    { id: "events", heading: "Events", value: (row) => row.events?.join(", ") ?? "all" },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => (row.disabled_at ? "disabled" : "active"),
      cell: (row) => <StateBadge state={row.disabled_at ? "disabled" : "active"} />,
    },
    {
      id: "created_at",
      heading: "Made",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ];
  const add = can("webhooks.write", organizationId) && (
    <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
      New webhook
    </Button>
  );
  return (
    <Page
      title="Webhooks"
      about="Signed calls to your own address about budgets and caches. Failed calls are retried for about a day."
      actions={add}
    >
      <Table
        label="Webhooks"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="webhooks"
        empty={
          <Empty title="No webhooks" action={add}>
            Add an address to learn about budgets before they are spent.
          </Empty>
        }
      />
      {making && <WebhookForm organizationId={organizationId} onClose={() => setMaking(false)} />}
    </Page>
  );
}

export function WebhookForm({
  organizationId,
  webhook,
  onClose,
}: {
  organizationId: string;
  webhook?: Webhook;
  onClose: () => void;
}) {
  const [url, setUrl] = useState(webhook?.url ?? "");
  const [description, setDescription] = useState(webhook?.description ?? "");
  const [events, setEvents] = useState<Schemas["EventType"][] | null>(webhook?.events ?? null);
  const body = { url, description, events };
  const save = useAction(
    async () => {
      if (webhook) {
        await read(
          api.PATCH("/admin/v1/webhooks/{webhook_id}", {
            params: { path: { webhook_id: webhook.id } },
            body,
          }),
        );
        return null;
      }
      const made = await read(
        api.POST("/admin/v1/organizations/{organization_id}/webhooks", {
          params: { path: { organization_id: organizationId } },
          body,
        }),
      );
      return made.secret;
    },
    { quiet: true, done: "The webhook is saved.", then: (secret) => secret === null && onClose() },
  );
  if (save.data)
    return <NewSecret title="The webhook’s signing secret" secret={save.data} onClose={onClose} />;
  return (
    <FormDialog
      title={webhook ? "Change the webhook" : "New webhook"}
      submit="Save"
      busy={save.isPending}
      error={save.error}
      onSubmit={() => save.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Address"
        type="url"
        required
        autoFocus
        placeholder="https://example.com/hooks/slipstream"
        value={url}
        onChange={(event) => setUrl(event.currentTarget.value)}
      />
      <TextField
        label="What for"
        value={description}
        onChange={(event) => setDescription(event.currentTarget.value)}
      />
      <ChoiceField
        legend="Events"
        all="all, including later ones"
        options={EVENTS}
        chosen={events as never}
        onChange={setEvents}
      />
    </FormDialog>
  );
}
