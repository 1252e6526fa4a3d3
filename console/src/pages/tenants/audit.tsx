import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Dialog } from "../../components/dialog";
import { Filters, TextFilter } from "../../components/filters";
import { Empty } from "../../components/notice";
import { Facts, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { FullTime, Time } from "../../components/time";
import { filtersOf } from "../../shell/search";
import { differences, written } from "./audit-difference";

type Entry = Schemas["AuditEntry"];
const route = getRouteApi("/signed/org/$organizationId/audit");
const TONES = { added: "good", removed: "bad", changed: "accent" } as const;

export function Audit() {
  const { organizationId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const [shown, setShown] = useState<Entry | null>(null);
  const { since, until, ...exact } = search;
  const query = {
    ...exact,
    ...(since ? { since: `${since}T00:00:00Z` } : {}),
    ...(until ? { until: `${until}T23:59:59.999Z` } : {}),
  };
  const list = useList(["audit", organizationId, query], (cursor) =>
    read(
      api.GET("/admin/v1/audit", {
        params: { query: { limit: 100, cursor, organization_id: organizationId, ...query } },
      }),
    ),
  );
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const columns: Column<Entry>[] = [
    { id: "at", heading: "When", value: (row) => row.at, cell: (row) => <Time at={row.at} /> },
    {
      id: "actor",
      heading: "Who",
      value: (row) => row.actor_name,
      cell: (row) => (
        <>
          <span className="primary-cell">{row.actor_name}</span>{" "}
          <span className="quiet small">{row.actor_kind.replace("_", " ")}</span>
        </>
      ),
    },
    { id: "action", heading: "Did", value: (row) => row.action, cell: (row) => <code>{row.action}</code> },
    {
      id: "subject",
      heading: "To",
      value: (row) => `${row.subject_kind} ${row.subject_id}`,
      cell: (row) => {
        const name = nameIn(row.after) ?? nameIn(row.before);
        return (
          <>
            {row.subject_kind.replaceAll("_", " ")}{" "}
            <span className="quiet small">{name ?? `${row.subject_id.slice(0, 13)}…`}</span>
          </>
        );
      },
    },
    {
      id: "changed",
      heading: "Changed",
      value: (row) =>
        differences(row.before, row.after)
          .map((each) => each.field)
          .join(", "),
      cell: (row) => {
        const fields = differences(row.before, row.after).map((each) => each.field);
        return (
          <span className="quiet small">
            {fields.length > 3 ? `${fields.length} fields` : fields.join(", ") || "–"}
          </span>
        );
      },
    },
    {
      id: "show",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) => (
        <Button
          size="small"
          kind="plain"
          aria-label={`Show change ${row.id}, ${row.action}`}
          onClick={() => setShown(row)}
        >
          Show
        </Button>
      ),
    },
  ];
  return (
    <Page
      title="Audit log"
      about="Every change, its author, and the values before and after. The log is tamper-evident."
    >
      <Filters>
        <TextFilter
          label="Action"
          placeholder="key.revoke"
          value={search.action}
          onChange={(action) => set({ action })}
        />
        <TextFilter
          label="Subject’s id"
          value={search.subject_id}
          onChange={(subject_id) => set({ subject_id })}
        />
        <TextFilter label="Actor’s id" value={search.actor_id} onChange={(actor_id) => set({ actor_id })} />
        <TextFilter
          label="Since (UTC)"
          type="date"
          value={search.since}
          onChange={(value) => set({ since: value })}
        />
        <TextFilter
          label="Until (UTC)"
          type="date"
          value={search.until}
          onChange={(value) => set({ until: value })}
        />
      </Filters>
      <Table
        label="Audit log"
        columns={columns}
        list={list}
        rowKey={(row) => String(row.id)}
        csvName="audit"
        empty={<Empty title="No change matches">Clear the filters, or choose a longer period.</Empty>}
      />
      {shown && <Change entry={shown} onClose={() => setShown(null)} />}
    </Page>
  );
}

function nameIn(value: unknown): string | null {
  const name = (value as { name?: unknown } | null)?.name;
  return typeof name === "string" ? name : null;
}

function Change({ entry, onClose }: { entry: Entry; onClose: () => void }) {
  const changed = differences(entry.before, entry.after);
  return (
    <Dialog title={`Change ${entry.id}: ${entry.action}`} wide onClose={onClose}>
      <div className="dialog-body">
        <Facts
          facts={[
            ["When", <FullTime key="at" at={entry.at} />],
            ["Who", `${entry.actor_name} (${entry.actor_kind.replace("_", " ")})`],
            [
              "Subject",
              <span key="subject">
                {entry.subject_kind} <code>{entry.subject_id}</code>
              </span>,
            ],
            ["Request", entry.request_id === null ? "none" : <code key="request">{entry.request_id}</code>],
            [
              "Hash",
              <code key="hash" className="wrap">
                {entry.hash}
              </code>,
            ],
          ]}
        />
        {changed.length === 0 ? (
          <p className="quiet">The subject itself did not change.</p>
        ) : (
          <div className="table-scroll">
            <table className="table">
              <caption className="visually-hidden">What changed</caption>
              <thead>
                <tr>
                  {["Field", "Before", "After"].map((heading) => (
                    <th key={heading} scope="col">
                      <span>{heading}</span>
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {changed.map((each) => (
                  <tr key={each.field}>
                    <td>
                      <code>{each.field}</code> <Badge tone={TONES[each.kind]}>{each.kind}</Badge>
                    </td>
                    <td className="wrap" data-label="Before">
                      {written(each.before)}
                    </td>
                    <td className="wrap" data-label="After">
                      {written(each.after)}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
    </Dialog>
  );
}
