import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { StateBadge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, Dialog } from "../../components/dialog";
import { Filters, SelectFilter } from "../../components/filters";
import { ActionsMenu } from "../../components/menu";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Facts, Page } from "../../components/page";
import { Pending } from "../../components/pending";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { milliseconds } from "../../format/number";
import { DELIVERY_STATES } from "../../shell/choices";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { stillOpens } from "./earlier-secret";
import { NewSecret } from "./key-form";
import { WebhookForm } from "./webhooks";

type Delivery = Schemas["Delivery"];
const route = getRouteApi("/signed/org/$organizationId/webhooks/$webhookId");
const FRESH_EVERY_MS = 5000;

export function WebhookPage() {
  const { organizationId, webhookId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const goTo = useNavigate();
  const { can } = useMyself();
  const [open, setOpen] = useState<"none" | "edit" | "remove" | "rotate">("none");
  const [shown, setShown] = useState<string | null>(null);
  const path = { webhook_id: webhookId };
  const webhook = useQuery({
    queryKey: ["webhook", webhookId],
    queryFn: () => read(api.GET("/admin/v1/webhooks/{webhook_id}", { params: { path } })),
  });
  const deliveries = useList(
    ["deliveries", webhookId, search],
    (cursor) =>
      read(
        api.GET("/admin/v1/webhooks/{webhook_id}/deliveries", {
          params: { path, query: { limit: 100, cursor, ...search } },
        }),
      ),
    { refetchEveryMs: FRESH_EVERY_MS },
  );
  const test = useAction(() => read(api.POST("/admin/v1/webhooks/{webhook_id}/test", { params: { path } })), {
    done: "A test event is on its way and appears below.",
  });
  const toggle = useAction(
    (disabled: boolean) =>
      read(api.PATCH("/admin/v1/webhooks/{webhook_id}", { params: { path }, body: { disabled } })),
    { done: (made) => (made.disabled_at ? "The webhook is disabled." : "The webhook is enabled.") },
  );
  const rotate = useAction(() =>
    read(api.POST("/admin/v1/webhooks/{webhook_id}/rotate-secret", { params: { path }, body: {} })),
  );
  const remove = useAction(() => read(api.DELETE("/admin/v1/webhooks/{webhook_id}", { params: { path } })), {
    done: "The webhook is removed.",
    stale: ["webhooks"],
    then: () => void goTo({ to: "/org/$organizationId/webhooks", params: { organizationId } }),
  });
  const replay = useAction(
    (delivery_id: string) =>
      read(api.POST("/admin/v1/deliveries/{delivery_id}/retry", { params: { path: { delivery_id } } })),
    { done: "The event is sent again." },
  );
  if (!webhook.data) return <Pending title="Webhook" query={webhook} />;
  const writes = can("webhooks.write", organizationId);
  const columns: Column<Delivery>[] = [
    { id: "type", heading: "Event", value: (row) => row.type, cell: (row) => <code>{row.type}</code> },
    {
      id: "state",
      heading: "State",
      lead: true,
      value: (row) => row.state,
      cell: (row) => <StateBadge state={row.state} />,
    },
    { id: "attempts", heading: "Attempts", right: true, value: (row) => row.attempts },
    {
      id: "created_at",
      heading: "When",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
    {
      id: "next_attempt_at",
      heading: "Next attempt",
      value: (row) => (row.state === "pending" ? row.next_attempt_at : null),
      cell: (row) => (row.state === "pending" ? <Time at={row.next_attempt_at} /> : "–"),
    },
    {
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) => (
        <ActionsMenu
          label={`Actions for the delivery of ${row.type}`}
          actions={[
            { label: "Attempts…", onSelect: () => setShown(row.id) },
            ...(writes ? [{ label: "Send again", onSelect: () => replay.mutate(row.id) }] : []),
          ]}
        />
      ),
    },
  ];
  return (
    <Page
      title={webhook.data.description || "Webhook"}
      crumbs={[
        <Link key="webhooks" to="/org/$organizationId/webhooks" params={{ organizationId }}>
          Webhooks
        </Link>,
      ]}
      actions={
        writes && (
          <>
            <Button busy={test.isPending} onClick={() => test.mutate(undefined)}>
              Send a test
            </Button>
            <Button onClick={() => setOpen("edit")}>Change</Button>
            <ActionsMenu
              label="More actions"
              actions={[
                { label: "New signing secret…", onSelect: () => setOpen("rotate") },
                webhook.data.disabled_at
                  ? { label: "Enable", onSelect: () => toggle.mutate(false) }
                  : { label: "Disable", onSelect: () => toggle.mutate(true) },
                { label: "Remove…", tone: "bad", onSelect: () => setOpen("remove") },
              ]}
            />
          </>
        )
      }
    >
      <div className="stack">
        <Card>
          <Facts
            facts={[
              ["Address", <code key="url">{webhook.data.url}</code>],
              ["Events", webhook.data.events?.join(", ") ?? "all"],
              ["State", <StateBadge key="state" state={webhook.data.disabled_at ? "disabled" : "active"} />],
              [
                "The earlier secret is valid until",
                <Time
                  key="old"
                  at={stillOpens(webhook.data.previous_secret_expires_at)}
                  none="there is none"
                />,
              ],
            ]}
          />
        </Card>
        <section>
          <h2 className="visually-hidden">Deliveries</h2>
          <Filters>
            <SelectFilter
              label="Deliveries"
              all="All"
              options={DELIVERY_STATES}
              value={search.state}
              onChange={(state) => void navigate({ search: (old) => ({ ...old, state }), replace: true })}
            />
          </Filters>
          <Table
            label="Deliveries"
            columns={columns}
            list={deliveries}
            rowKey={(row) => row.id}
            csvName="deliveries"
            empty={<Empty title="No deliveries yet">Send a test to check that your address responds.</Empty>}
          />
        </section>
      </div>
      {open === "edit" && (
        <WebhookForm organizationId={organizationId} webhook={webhook.data} onClose={() => setOpen("none")} />
      )}
      {open === "remove" && (
        <Confirm
          title="Remove the webhook?"
          action="Remove"
          busy={remove.isPending}
          onConfirm={() => remove.mutate(undefined)}
          onClose={() => setOpen("none")}
        >
          Waiting events are not sent any more.
        </Confirm>
      )}
      {open === "rotate" && !rotate.data && (
        <Confirm
          title="Make a new signing secret?"
          action="Make it"
          busy={rotate.isPending}
          onConfirm={() => rotate.mutate(undefined)}
          onClose={() => setOpen("none")}
        >
          The current secret stays valid for a while, so that you can update your receiver.
        </Confirm>
      )}
      {open === "rotate" && rotate.data && (
        <NewSecret
          title="The new signing secret"
          secret={rotate.data.secret}
          onClose={() => {
            rotate.reset();
            setOpen("none");
          }}
        />
      )}
      {shown && <Attempts deliveryId={shown} onClose={() => setShown(null)} />}
    </Page>
  );
}

function Attempts({ deliveryId, onClose }: { deliveryId: string; onClose: () => void }) {
  const log = useQuery({
    queryKey: ["delivery", deliveryId],
    queryFn: () =>
      read(api.GET("/admin/v1/deliveries/{delivery_id}", { params: { path: { delivery_id: deliveryId } } })),
  });
  return (
    <Dialog title="Attempts" wide onClose={onClose}>
      <div className="dialog-body">
        {log.error ? (
          <ErrorNotice error={log.error} />
        ) : !log.data ? (
          <Loading lines={3} />
        ) : (
          <Table
            label="Attempts"
            list={log.data.attempts}
            rowKey={(row) => String(row.attempt)}
            empty={<Empty title="Not tried yet" />}
            columns={[
              { id: "attempt", heading: "Attempt", right: true, value: (row) => row.attempt },
              { id: "at", heading: "When", value: (row) => row.at, cell: (row) => <Time at={row.at} /> },
              { id: "status", heading: "Answer", value: (row) => row.status ?? row.error },
              {
                id: "duration_ms",
                heading: "Took",
                right: true,
                value: (row) => row.duration_ms,
                cell: (row) => milliseconds(row.duration_ms),
              },
            ]}
          />
        )}
      </div>
    </Dialog>
  );
}
