/** The ledger of changes: what each was expected to do to latency, beside what it did. */
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { useAction } from "../../../components/action";
import { Badge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { Confirm, FormDialog } from "../../../components/dialog";
import { SelectField, TextField } from "../../../components/field";
import { ActionsMenu } from "../../../components/menu";
import { Empty } from "../../../components/notice";
import { Page } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count, duration, milliseconds } from "../../../format/number";
import { TIERS } from "../../../shell/choices";
import { useMyself } from "../../../shell/session";
import { CHANGE_METRICS, STATISTICS } from "./choices";
import "./quality.css";

type Change = Schemas["ExpectedChange"];
type Metric = Schemas["Metric"];
const METRICS: Record<Metric, string> = {
  ttft: "time to first token",
  tpot: "time per token",
  longest_gap: "longest gap",
};
const WINDOWS_S = [3600, 6 * 3600, 86_400, 7 * 86_400];

/** 350 → "+350 ms". */
const more = (ms: number) => `${ms > 0 ? "+" : ms < 0 ? "−" : ""}${milliseconds(Math.abs(ms))}`;

export function Changes() {
  const { canOperate } = useMyself();
  const [noting, setNoting] = useState(false);
  const [forgetting, setForgetting] = useState<Change | null>(null);
  const list = useList(["changes"], (cursor) =>
    read(api.GET("/admin/v1/changes", { params: { query: { limit: 100, cursor } } })),
  );
  useLive(["diagnosis"], [["changes"]]);
  const measure = useAction(
    (change_id: string) =>
      read(api.POST("/admin/v1/changes/{change_id}/measure", { params: { path: { change_id } } })),
    { done: (made) => `The measurement of ${made.name} is stored.` },
  );
  const forget = useAction(
    (change_id: string) =>
      read(api.DELETE("/admin/v1/changes/{change_id}", { params: { path: { change_id } } })),
    { done: "The change is deleted.", then: () => setForgetting(null) },
  );
  const writes = canOperate("changes.write");
  const columns: Column<Change>[] = [
    {
      id: "name",
      heading: "Change",
      value: (row) => row.name,
      cell: (row) => <span className="primary-cell">{row.name}</span>,
    },
    { id: "made_at", heading: "Made", value: (row) => row.made_at, cell: (row) => <Time at={row.made_at} /> },
    {
      id: "number",
      heading: "Metric",
      value: (row) => `${METRICS[row.metric]} ${row.statistic}`,
      cell: (row) => (
        <>
          {METRICS[row.metric]} {row.statistic}{" "}
          <span className="quiet">{[row.model, row.tier].filter(Boolean).join(", ") || "all requests"}</span>
        </>
      ),
    },
    {
      id: "expected_ms",
      heading: "Expected",
      right: true,
      value: (row) => row.expected_ms,
      cell: (row) => more(row.expected_ms),
    },
    {
      id: "before_ms",
      heading: "Before",
      right: true,
      value: (row) => row.before_ms,
      cell: (row) => <Measured ms={row.before_ms} requests={row.before_requests} />,
    },
    {
      id: "after_ms",
      heading: "After",
      right: true,
      value: (row) => row.after_ms,
      cell: (row) => <Measured ms={row.after_ms} requests={row.after_requests} />,
    },
    {
      id: "effect_ms",
      heading: "Measured effect",
      right: true,
      value: (row) => row.effect_ms,
      cell: (row) =>
        row.effect_ms === null ? (
          "–"
        ) : (
          <Badge tone={row.effect_ms <= 0 ? "good" : "bad"}>{more(row.effect_ms)}</Badge>
        ),
    },
    {
      id: "measured_at",
      heading: "Stored",
      value: (row) => row.measured_at,
      cell: (row) => <Time at={row.measured_at} none="not stored yet" />,
    },
    {
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) =>
        writes && (
          <ActionsMenu
            label={`Actions for ${row.name}`}
            actions={[
              ...(row.measured_at === null
                ? [{ label: "Measure and store", onSelect: () => measure.mutate(row.id) }]
                : []),
              { label: "Delete…", tone: "bad" as const, onSelect: () => setForgetting(row) },
            ]}
          />
        ),
    },
  ];
  const add = writes && (
    <Button kind="primary" icon="plus" onClick={() => setNoting(true)}>
      Record a change
    </Button>
  );
  return (
    <Page
      title="Changes"
      about="Each change’s expected effect on latency, and its measured effect: latency before and after the change."
      actions={add}
    >
      <Table
        label="Changes"
        columns={columns}
        list={list}
        rowKey={(row) => row.id}
        csvName="changes"
        empty={
          <Empty title="No changes recorded" action={add}>
            Record the expected effect of a change before you make it. This page then compares it with the
            measured effect.
          </Empty>
        }
      />
      {noting && <NoteChange onClose={() => setNoting(false)} />}
      {forgetting && (
        <Confirm
          title={`Delete ${forgetting.name}?`}
          action="Delete"
          busy={forget.isPending}
          error={forget.error}
          onConfirm={() => forget.mutate(forgetting.id)}
          onClose={() => setForgetting(null)}
        >
          This deletes the expected and the measured effect; the audit log keeps both.
        </Confirm>
      )}
    </Page>
  );
}

function Measured({ ms, requests }: { ms: number | null; requests: number | null }) {
  if (ms === null) return <span className="quiet">no requests</span>;
  return (
    <>
      {milliseconds(ms)} <span className="quiet">of {count(requests)}</span>
    </>
  );
}

function NoteChange({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [expected, setExpected] = useState("");
  const [metric, setMetric] = useState<Metric>("ttft");
  const [statistic, setStatistic] = useState<Schemas["Statistic"]>("p95");
  const [tier, setTier] = useState("");
  const [model, setModel] = useState("");
  const [windowS, setWindowS] = useState(86_400);
  const expectedMs = Number(expected.replace("−", "-"));
  const valid = expected.trim() !== "" && Number.isFinite(expectedMs) && Math.abs(expectedMs) <= 3_600_000;
  const note = useAction(
    () =>
      read(
        api.POST("/admin/v1/changes", {
          body: {
            name,
            metric,
            statistic,
            expected_ms: expectedMs,
            window_s: windowS,
            tier: TIERS.find((each) => each === tier) ?? null,
            model: model.trim() || null,
          },
        }),
      ),
    { quiet: true, done: (made) => `${made.name} is recorded.`, then: onClose },
  );
  return (
    <FormDialog
      title="Record a change"
      submit="Record"
      busy={note.isPending}
      error={note.error}
      disabled={!valid || name.trim() === ""}
      onSubmit={() => note.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="What is changed"
        required
        autoFocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        placeholder="prefix caching"
      />
      <div className="grid-2">
        <SelectField
          label="Metric"
          value={metric}
          onChange={(event) =>
            setMetric(CHANGE_METRICS.find((each) => each === event.currentTarget.value) ?? "ttft")
          }
        >
          {CHANGE_METRICS.map((each) => (
            <option key={each} value={each}>
              {METRICS[each]}
            </option>
          ))}
        </SelectField>
        <SelectField
          label="Statistic"
          value={statistic}
          onChange={(event) =>
            setStatistic(STATISTICS.find((each) => each === event.currentTarget.value) ?? "p95")
          }
        >
          {STATISTICS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </SelectField>
      </div>
      <TextField
        label="Expected change, milliseconds"
        required
        inputMode="text"
        value={expected}
        onChange={(event) => setExpected(event.currentTarget.value)}
        placeholder="-250"
        hint="Negative means faster."
        error={expected.trim() !== "" && !valid ? "A number of milliseconds, an hour at most." : null}
      />
      <div className="grid-2">
        <SelectField label="Tier" value={tier} onChange={(event) => setTier(event.currentTarget.value)}>
          <option value="">all</option>
          {TIERS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </SelectField>
        <TextField
          label="Model"
          value={model}
          onChange={(event) => setModel(event.currentTarget.value)}
          placeholder="all"
        />
      </div>
      <SelectField
        label="Period measured on each side"
        value={windowS}
        onChange={(event) => setWindowS(Number(event.currentTarget.value))}
        hint="The change counts as made now."
      >
        {WINDOWS_S.map((seconds) => (
          <option key={seconds} value={seconds}>
            {duration(seconds)}
          </option>
        ))}
      </SelectField>
    </FormDialog>
  );
}
