/** Queue a run, or a comparison of two pools. */
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, read } from "../../../api/client";
import { useFleetModels, useFleetPools } from "../../../api/fleet-names";
import { useAction } from "../../../components/action";
import { FormDialog } from "../../../components/dialog";
import { SelectField, TextField } from "../../../components/field";
import { shareOf, wholeOf } from "./release-input";
import { SlicesField } from "./slices-field";

const MOST_ITEMS = 100_000;
const sentence = (value: unknown) => (typeof value === "string" ? value : null);

export function RunForm({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const models = useFleetModels();
  const pools = useFleetPools();
  const [model, setModel] = useState("");
  const [pool, setPool] = useState("");
  const [slices, setSlices] = useState<string[]>([]);
  const [items, setItems] = useState("100");
  const found = models.data?.find((each) => each.name === model) ?? models.data?.[0];
  const chosen = found?.name ?? "";
  const asked = wholeOf(items, 1, MOST_ITEMS);
  const start = useAction(
    () =>
      read(
        api.POST("/admin/v1/evals/runs", {
          body: {
            model: chosen,
            slices,
            items: typeof asked === "number" ? asked : 100,
            ...(pool === "" ? {} : { pool }),
          },
        }),
      ),
    {
      quiet: true,
      done: "The run is queued; a worker starts it within seconds.",
      then: (made) => {
        onClose();
        void navigate({ to: "/operations/evals/runs/$runId", params: { runId: made.id } });
      },
    },
  );
  return (
    <FormDialog
      title="Start a run"
      submit="Start"
      busy={start.isPending}
      error={start.error ?? models.error}
      disabled={chosen === "" || slices.length === 0 || typeof asked !== "number"}
      onSubmit={() => start.mutate(undefined)}
      onClose={onClose}
    >
      <SelectField
        label="Model"
        value={chosen}
        onChange={(event) => {
          setModel(event.currentTarget.value);
          setSlices([]);
        }}
        required
      >
        {models.data?.map((each) => (
          <option key={each.name}>{each.name}</option>
        ))}
      </SelectField>
      <SelectField label="Answered by" value={pool} onChange={(event) => setPool(event.currentTarget.value)}>
        <option value="">whichever pool the router chooses</option>
        {pools.data?.map((each) => (
          <option key={each.name}>{each.name}</option>
        ))}
      </SelectField>
      <SlicesField legend="Slices" tier={found?.tier} chosen={slices} onChange={setSlices} />
      <TextField
        label="Items per slice"
        inputMode="numeric"
        required
        value={items}
        onChange={(event) => setItems(event.currentTarget.value)}
        error={sentence(asked)}
      />
    </FormDialog>
  );
}

export function ComparisonForm({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const models = useFleetModels();
  const pools = useFleetPools();
  const [model, setModel] = useState("");
  const [baseline, setBaseline] = useState("");
  const [candidate, setCandidate] = useState("");
  const [slices, setSlices] = useState<string[]>([]);
  const [budget, setBudget] = useState("1600");
  const [margin, setMargin] = useState("2");
  const chosen = models.data?.find((each) => each.name === model) ?? models.data?.[0];
  const names = pools.data?.map((each) => each.name) ?? [];
  const first = baseline || chosen?.pool || "";
  const others = names.filter((name) => name !== first);
  const second = others.includes(candidate) ? candidate : (others[0] ?? "");
  const most = wholeOf(budget, 1, MOST_ITEMS);
  const share = shareOf(margin, 0.001, 0.999);
  const start = useAction(
    () =>
      read(
        api.POST("/admin/v1/evals/comparisons", {
          body: {
            model: chosen?.name ?? "",
            baseline_pool: first,
            candidate_pool: second,
            slices,
            ...(typeof most === "number" ? { budget_items: most } : {}),
            ...(typeof share === "number" ? { rule: { margin: share } } : {}),
          },
        }),
      ),
    {
      quiet: true,
      done: "The comparison is queued; a worker starts it within seconds.",
      then: (made) => {
        onClose();
        void navigate({
          to: "/operations/evals/comparisons/$comparisonId",
          params: { comparisonId: made.id },
        });
      },
    },
  );
  const pool = (name: string) => <option key={name}>{name}</option>;
  return (
    <FormDialog
      title="Compare two pools"
      submit="Compare"
      busy={start.isPending}
      error={start.error ?? models.error ?? pools.error}
      disabled={
        !chosen || second === "" || slices.length === 0 || sentence(most) !== null || sentence(share) !== null
      }
      onSubmit={() => start.mutate(undefined)}
      onClose={onClose}
    >
      <SelectField
        label="Model"
        value={chosen?.name ?? ""}
        onChange={(event) => {
          setModel(event.currentTarget.value);
          setSlices([]);
        }}
        required
      >
        {models.data?.map((each) => (
          <option key={each.name}>{each.name}</option>
        ))}
      </SelectField>
      <div className="grid-2">
        <SelectField
          label="Baseline"
          value={first}
          onChange={(event) => setBaseline(event.currentTarget.value)}
        >
          {names.map(pool)}
        </SelectField>
        <SelectField
          label="Candidate"
          value={second}
          onChange={(event) => setCandidate(event.currentTarget.value)}
          hint={others.length === 0 ? "There is no other pool to compare with." : undefined}
        >
          {others.map(pool)}
        </SelectField>
      </div>
      <SlicesField legend="Slices" tier={chosen?.tier} chosen={slices} onChange={setSlices} />
      <div className="grid-2">
        <TextField
          label="Maximum items per slice"
          inputMode="numeric"
          value={budget}
          onChange={(event) => setBudget(event.currentTarget.value)}
          error={sentence(most)}
        />
        <TextField
          label="Margin, points"
          inputMode="decimal"
          value={margin}
          onChange={(event) => setMargin(event.currentTarget.value)}
          error={sentence(share)}
          hint="The largest loss of score that a slice may have."
        />
      </div>
    </FormDialog>
  );
}
