/** Small models that answer some of a large one's requests first, and the comparison that lets each do so. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { fleetModels } from "../../../api/fleet-names";
import { useLive } from "../../../api/live";
import { useAction } from "../../../components/action";
import { Badge } from "../../../components/badge";
import { Button } from "../../../components/button";
import { FormDialog } from "../../../components/dialog";
import { SelectField } from "../../../components/field";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Page } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { count, percent } from "../../../format/number";
import { absolute } from "../../../format/time";
import { useMyself } from "../../../shell/session";
import { points } from "./eval-words";
import "./quality.css";

type Model = Schemas["Model"];

export function Cascades() {
  const { canOperate } = useMyself();
  const models = useQuery(fleetModels);
  const [approving, setApproving] = useState<Model | null>(null);
  useLive(["fleet"], [["fleet-models"]]);
  const cascades = (models.data ?? []).filter((model) => model.cascade);
  const columns: Column<Model>[] = [
    {
      id: "model",
      heading: "Model",
      value: (row) => row.name,
      cell: (row) => <span className="primary-cell">{row.name}</span>,
    },
    { id: "first", heading: "Answered first by", value: (row) => row.cascade?.first },
    {
      id: "when",
      heading: "When",
      value: (row) => row.cascade?.when ?? "busy",
      cell: (row) => (row.cascade?.when === "always" ? "always" : "while it is busy"),
    },
    {
      id: "min_confidence",
      heading: "Minimum confidence",
      right: true,
      value: (row) => row.cascade?.min_confidence ?? 0.7,
      cell: (row) => percent(row.cascade?.min_confidence ?? 0.7, 0),
    },
    {
      id: "max_prompt_tokens",
      heading: "Prompts up to",
      right: true,
      value: (row) => row.cascade?.max_prompt_tokens ?? 4096,
      cell: (row) => `${count(row.cascade?.max_prompt_tokens ?? 4096)} tokens`,
    },
    {
      id: "quality_margin",
      heading: "Quality budget",
      right: true,
      value: (row) => row.cascade?.quality_margin ?? 0.02,
      cell: (row) => points(row.cascade?.quality_margin ?? 0.02, 1).replace("+", ""),
    },
    {
      id: "approval",
      heading: "Answers customers",
      value: (row) => (row.cascade?.approval ? "approved" : "not approved"),
      cell: (row) =>
        row.cascade?.approval ? (
          <>
            <Badge tone="good">approved</Badge>{" "}
            <Link
              to="/operations/evals/comparisons/$comparisonId"
              params={{ comparisonId: row.cascade.approval.comparison }}
            >
              by its comparison
            </Link>
          </>
        ) : (
          <Badge tone="warn">not approved</Badge>
        ),
    },
    {
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) =>
        canOperate("fleet.write") && (
          <Button size="small" onClick={() => setApproving(row)}>
            Approve…
          </Button>
        ),
    },
  ];
  return (
    <Page
      title="Cascades"
      about="A small model answers first, and the large model answers the requests that the small one is unsure of. A cascade serves customers only after a comparison has passed."
    >
      {models.error ? (
        <ErrorNotice error={models.error} retry={() => void models.refetch()} />
      ) : !models.data ? (
        <Loading lines={4} />
      ) : (
        <Table
          label="Cascades"
          columns={columns}
          list={cascades}
          rowKey={(row) => row.name}
          csvName="cascades"
          empty={
            <Empty title="No model has a cascade">
              Give a chat model one, <code>slipstream fleet models set MODEL --file</code>, and compare the
              cascade with the large model’s own pool.
            </Empty>
          }
        />
      )}
      {approving && (
        <Approve model={approving} models={models.data ?? []} onClose={() => setApproving(null)} />
      )}
    </Page>
  );
}

function Approve({ model, models, onClose }: { model: Model; models: Model[]; onClose: () => void }) {
  const [chosen, setChosen] = useState("");
  const pool = models.find((each) => each.name === model.cascade?.first)?.pool;
  const found = useQuery({
    queryKey: ["eval-comparisons", "passed", model.name],
    queryFn: () =>
      read(
        api.GET("/admin/v1/evals/comparisons", {
          params: { query: { limit: 100, model: model.name, status: "done" } },
        }),
      ),
  });
  const passed = (found.data?.data ?? []).filter(
    (each) => each.decision === "pass" && each.baseline_pool === model.pool && each.candidate_pool === pool,
  );
  const comparison = chosen || passed[0]?.id || "";
  const approve = useAction(
    () =>
      read(
        api.PUT("/admin/v1/cascades/{model_name}", {
          params: { path: { model_name: model.name } },
          body: { comparison },
        }),
      ),
    { quiet: true, done: `The cascade of ${model.name} now serves customers.`, then: onClose },
  );
  return (
    <FormDialog
      title={`Let the cascade of ${model.name} serve customers?`}
      submit="Approve"
      busy={approve.isPending}
      error={approve.error ?? found.error}
      disabled={comparison === ""}
      onSubmit={() => approve.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        {model.cascade?.first} answers {model.name}’s customers first from then on. Any change to the cascade,
        its models or their pools ends the approval.
      </p>
      {found.data && passed.length === 0 ? (
        <Notice tone="warn" title="No comparison has passed">
          Compare {model.pool} with {pool ?? "the small model’s pool"} as {model.name}, by a margin of{" "}
          {points(model.cascade?.quality_margin ?? 0.02, 1).replace("+", "")} or less.{" "}
          <Link to="/operations/evals" search={{ view: "comparisons", model: model.name }}>
            Comparisons of {model.name}
          </Link>
        </Notice>
      ) : (
        <SelectField
          label="Comparison"
          value={comparison}
          onChange={(event) => setChosen(event.currentTarget.value)}
        >
          {passed.map((each) => (
            <option key={each.id} value={each.id}>
              {absolute(each.ended_at ?? each.created_at)}, margin{" "}
              {points(each.rule.margin ?? 0.02, 1).replace("+", "")}
            </option>
          ))}
        </SelectField>
      )}
    </FormDialog>
  );
}
