import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../api/client";
import { Button } from "../../components/button";
import { Filters, TextFilter } from "../../components/filters";
import { Empty, ErrorNotice, Loading } from "../../components/notice";
import { Card, Facts, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { money } from "../../format/money";
import { count } from "../../format/number";
import { utcMonth } from "../../format/time";
import { useOrganization } from "../../shell/shell";
import { isOver, monthName, periodTold, priceTold, roundingTold } from "./invoice-words";

type Line = Schemas["InvoiceLine"];
const route = getRouteApi("/signed/org/$organizationId/invoices");

export function Invoices() {
  const { organizationId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const month = search.month ?? utcMonth(new Date());
  const invoice = useQuery({
    queryKey: ["invoice", organizationId, month],
    queryFn: () =>
      read(
        api.GET("/admin/v1/organizations/{organization_id}/invoices/{month_name}", {
          params: { path: { organization_id: organizationId, month_name: month } },
        }),
      ),
  });
  const organization = useOrganization(organizationId);
  const number = (
    id: "requests" | "prompt_tokens" | "cached_tokens" | "completion_tokens",
    heading: string,
  ) => ({
    id,
    heading,
    right: true,
    value: (row: Line) => row[id],
    cell: (row: Line) => count(row[id]),
  });
  const currency = invoice.data?.currency ?? "";
  const columns: Column<Line>[] = [
    { id: "project", heading: "Project", value: (row) => row.project ?? row.project_id },
    { id: "key", heading: "Key", value: (row) => row.key ?? row.key_id },
    { id: "model", heading: "Model", value: (row) => row.model },
    { id: "tier", heading: "Tier", value: (row) => row.tier },
    number("requests", "Requests"),
    number("prompt_tokens", "Input tokens"),
    number("cached_tokens", "From the cache"),
    number("completion_tokens", "Output tokens"),
    {
      id: "price",
      heading: "Price per million (in / cached / out)",
      right: true,
      value: (row) => row.price_version,
      cell: (row) =>
        row.input_micro === null ? (
          <Link to="/prices">{priceTold(row, currency)}</Link>
        ) : (
          priceTold(row, currency)
        ),
    },
    {
      id: "amount",
      heading: "Amount",
      right: true,
      value: (row) => row.amount_micro / 1_000_000,
      cell: (row) => money(row.amount_micro, currency),
    },
    { id: "currency", heading: "Currency", value: () => currency, csvOnly: true },
  ];
  return (
    <Page
      title="Invoices"
      about="A calendar month (UTC): the sum of all requests by project, key, model and price."
      actions={
        invoice.data && (
          <Button icon="invoice" onClick={() => print()}>
            Print or save as PDF
          </Button>
        )
      }
    >
      <Filters>
        <TextFilter
          label="Month"
          type="month"
          value={month}
          onChange={(value) => void navigate({ search: (old) => ({ ...old, month: value }), replace: true })}
        />
      </Filters>
      {invoice.error ? (
        <ErrorNotice error={invoice.error} retry={() => void invoice.refetch()} />
      ) : !invoice.data ? (
        <Loading />
      ) : (
        <article className="stack invoice">
          <Card title={`Invoice: ${organization.data?.name ?? ""}, ${monthName(invoice.data.begin)}`}>
            <Facts
              facts={[
                ["To", organization.data?.name],
                ["Period", periodTold(invoice.data.begin, invoice.data.end)],
                [
                  "State",
                  isOver(invoice.data.end) ? "complete" : "the month is not over: amounts still grow",
                ],
                ["Requests", count(invoice.data.requests)],
                [
                  "Total",
                  <strong key="total" className="invoice-total">
                    {money(invoice.data.amount_micro, currency)}
                  </strong>,
                ],
                ["Rounding", roundingTold(invoice.data)],
                ["Organization’s id", <code key="id">{invoice.data.organization_id}</code>],
              ]}
            />
          </Card>
          <Table
            label={`Invoice of ${month}, ${money(invoice.data.amount_micro, currency)}`}
            columns={columns}
            list={invoice.data.lines}
            rowKey={(row) =>
              `${row.key_id} ${row.model} ${row.tier} ${row.price_version} ${row.price_percent}`
            }
            csvName={`invoice ${month}`}
            whole
            empty={<Empty title="Nothing was billed in this month">Choose another month.</Empty>}
          />
        </article>
      )}
    </Page>
  );
}
