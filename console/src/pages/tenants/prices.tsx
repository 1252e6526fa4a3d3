import { getRouteApi } from "@tanstack/react-router";
import { useId, useState } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useFleetModels } from "../../api/fleet-names";
import { useList } from "../../api/list";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Confirm, FormDialog } from "../../components/dialog";
import { TextField } from "../../components/field";
import { Filters, TextFilter } from "../../components/filters";
import { ActionsMenu } from "../../components/menu";
import { Empty } from "../../components/notice";
import { Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { Time } from "../../components/time";
import { exactMoney, microOf } from "../../format/money";
import { relative } from "../../format/time";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { canEnd, NOTICE_MS } from "./price-end";

type Price = Schemas["ModelPrice"];
const route = getRouteApi("/signed/prices");

export function Prices() {
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const { canOperate } = useMyself();
  const [open, setOpen] = useState<{ what: "new" } | { what: "remove" | "end"; price: Price } | null>(null);
  const list = useList(["prices", search], (cursor) =>
    read(api.GET("/admin/v1/prices", { params: { query: { limit: 100, cursor, ...search } } })),
  );
  const remove = useAction(
    (price_version: string) =>
      read(api.DELETE("/admin/v1/prices/{price_version}", { params: { path: { price_version } } })),
    { done: "The price is removed.", then: () => setOpen(null) },
  );
  const end = useAction(
    (price_version: string) =>
      read(
        api.PATCH("/admin/v1/prices/{price_version}", {
          params: { path: { price_version } },
          body: { valid_until: new Date(Date.now() + NOTICE_MS).toISOString() },
        }),
      ),
    { done: "The price ends in two minutes.", then: () => setOpen(null) },
  );
  const part = (
    id: "input_micro" | "cached_input_micro" | "cache_write_micro" | "output_micro",
    heading: string,
  ) => ({
    id,
    heading,
    right: true,
    value: (row: Price) => row[id] / 1_000_000,
    cell: (row: Price) => exactMoney(row[id], row.currency),
  });
  const writes = canOperate("prices.write");
  const columns: Column<Price>[] = [
    {
      id: "model",
      heading: "Model",
      value: (row) => row.model,
      cell: (row) => (
        <span className="row">
          <span className="primary-cell">{row.model}</span>
          {!row.served && <Badge tone="warn">not served</Badge>}
        </span>
      ),
    },
    part("input_micro", "Input"),
    part("cached_input_micro", "Input from the cache"),
    part("cache_write_micro", "Cache write"),
    part("output_micro", "Output"),
    { id: "currency", heading: "Currency", value: (row) => row.currency, csvOnly: true },
    {
      id: "valid_from",
      heading: "From",
      value: (row) => row.valid_from,
      cell: (row) => <Time at={row.valid_from} />,
    },
    {
      id: "valid_until",
      heading: "Until",
      value: (row) => row.valid_until,
      cell: (row) => <Time at={row.valid_until} none="further notice" />,
    },
    {
      id: "actions",
      heading: "",
      value: () => null,
      actions: true,
      cell: (row) =>
        writes && (
          <ActionsMenu
            label={`Actions for the price of ${row.model}, version ${row.version}`}
            actions={[
              ...(canEnd(row, new Date())
                ? [{ label: "End…", onSelect: () => setOpen({ what: "end", price: row }) }]
                : []),
              ...(new Date(row.valid_from) > new Date()
                ? [
                    {
                      label: "Remove…",
                      tone: "bad" as const,
                      onSelect: () => setOpen({ what: "remove", price: row }),
                    },
                  ]
                : []),
            ]}
          />
        ),
    },
  ];
  const add = writes && (
    <Button kind="primary" icon="plus" onClick={() => setOpen({ what: "new" })}>
      New price
    </Button>
  );
  return (
    <Page
      title="Prices"
      about="Per million tokens, by model. A request has the price that was valid at its arrival."
      actions={add}
    >
      <Filters>
        <TextFilter
          label="Model"
          value={search.model}
          onChange={(model) => void navigate({ search: (old) => ({ ...old, model }), replace: true })}
        />
      </Filters>
      <Table
        label="Prices"
        columns={columns}
        list={list}
        rowKey={(row) => String(row.version)}
        csvName="prices"
        empty={
          <Empty title={search.model ? "No price matches" : "No prices"} action={add}>
            {search.model
              ? "No model of this name has a price. Clear the filter to see all."
              : "Requests for a model without a price cost nothing."}
          </Empty>
        }
      />
      {open?.what === "new" && <NewPrice onClose={() => setOpen(null)} />}
      {open?.what === "remove" && (
        <Confirm
          title="Remove this price?"
          action="Remove"
          busy={remove.isPending}
          onConfirm={() => remove.mutate(String(open.price.version))}
          onClose={() => setOpen(null)}
        >
          The price is not valid yet, so no request has used it. The price before it stays valid.
        </Confirm>
      )}
      {open?.what === "end" && (
        <Confirm
          title={`End the price of ${open.price.model}?`}
          action="End"
          busy={end.isPending}
          onConfirm={() => end.mutate(String(open.price.version))}
          onClose={() => setOpen(null)}
        >
          Requests that arrive after two minutes cost nothing until another price begins.
          {open.price.valid_until !== null && (
            <>
              {" "}
              Without this it ends <Time at={open.price.valid_until} />.
            </>
          )}
        </Confirm>
      )}
    </Page>
  );
}

/** "The price begins …": the first of a model does at once, others after the API's notice. */
function begins(at: string): string {
  return new Date(at).getTime() <= Date.now()
    ? "The price is valid from now on."
    : `The price begins ${relative(at)}.`;
}

const PARTS = [
  ["input_micro", "Input", true],
  ["output_micro", "Output", true],
  ["cached_input_micro", "Input from the cache", false],
  ["cache_write_micro", "Cache write", false],
] as const;

function NewPrice({ onClose }: { onClose: () => void }) {
  const { currency } = useMyself();
  const models = useFleetModels();
  const served = useId();
  const [model, setModel] = useState("");
  const [texts, setTexts] = useState<Record<string, string>>({});
  const values = Object.fromEntries(
    PARTS.map(([name]) => [name, texts[name]?.trim() ? microOf(texts[name]) : undefined]),
  );
  const make = useAction(
    () =>
      read(
        api.POST("/admin/v1/prices", {
          body: {
            model,
            input_micro: values.input_micro ?? 0,
            output_micro: values.output_micro ?? 0,
            ...(values.cached_input_micro == null ? {} : { cached_input_micro: values.cached_input_micro }),
            ...(values.cache_write_micro == null ? {} : { cache_write_micro: values.cache_write_micro }),
          },
        }),
      ),
    { quiet: true, done: (made) => made.warning ?? begins(made.valid_from), then: onClose },
  );
  return (
    <FormDialog
      title="New price"
      submit="Make price"
      busy={make.isPending}
      error={make.error}
      disabled={PARTS.some(
        ([name, , needed]) => values[name] === null || (needed && values[name] === undefined),
      )}
      onSubmit={() => make.mutate(undefined)}
      onClose={onClose}
    >
      <TextField
        label="Model"
        required
        autoFocus
        value={model}
        onChange={(event) => setModel(event.currentTarget.value)}
        list={served}
        hint="The name that requests use. A price may exist before its model is served."
      />
      <datalist id={served}>
        {models.data?.map((each) => (
          <option key={each.name} value={each.name} />
        ))}
      </datalist>
      {PARTS.map(([name, label, needed]) => (
        <TextField
          key={name}
          label={`${label}, of a million tokens`}
          inputMode="decimal"
          required={needed}
          hint={`In ${currency}.${needed ? "" : " If empty: a tenth of the input price for the cache, the input price for cache writes."}`}
          error={values[name] === null ? "An amount of at most six decimals." : null}
          value={texts[name] ?? ""}
          onChange={(event) => {
            const value = event.currentTarget.value;
            setTexts((all) => ({ ...all, [name]: value }));
          }}
        />
      ))}
    </FormDialog>
  );
}
