/** Columns that every list of requests has. */
import { Link } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import { StateBadge } from "../../components/badge";
import type { Column } from "../../components/table";
import { Time } from "../../components/time";
import { count, milliseconds } from "../../format/number";
import type { Money } from "../../shell/money";
import { KeyName } from "./key-name";

export type Summary = Schemas["RequestSummary"];

/** The end of an id, which tells requests apart; the whole of it is in the link's name and title and in the CSV. */
function shortId(requestId: string): string {
  return requestId.slice(-8);
}

/** The id, which leads to the request. place: of one by its id. */
export function requestColumn(place: (requestId: string) => string): Column<Summary> {
  return {
    id: "request_id",
    heading: "Request",
    value: (row) => row.request_id,
    cell: (row) => (
      <Link to={place(row.request_id)} className="mono" title={row.request_id}>
        {shortId(row.request_id)}
      </Link>
    ),
  };
}

/** The columns after the id, which each list links to its own page. */
export function requestColumns(money: Money): Column<Summary>[] {
  return [
    {
      id: "recorded_at",
      heading: "When",
      value: (row) => row.recorded_at,
      cell: (row) => <Time at={row.recorded_at} />,
    },
    {
      id: "decision",
      heading: "Outcome",
      lead: true,
      value: (row) => row.decision,
      cell: (row) => (
        <>
          <StateBadge state={row.decision} /> {row.status}
          {row.error_code && (
            <>
              <br />
              <small className="quiet">{row.error_code}</small>
            </>
          )}
        </>
      ),
    },
    { id: "model", heading: "Model", value: (row) => row.model },
    {
      id: "key_id",
      heading: "Key",
      value: (row) => row.key_id,
      cell: (row) =>
        row.project_id && row.key_id ? (
          <KeyName organizationId={row.organization_id} projectId={row.project_id} keyId={row.key_id} />
        ) : (
          "–"
        ),
    },
    {
      id: "prompt_tokens",
      heading: "In",
      right: true,
      value: (row) => row.prompt_tokens,
      cell: (row) => count(row.prompt_tokens),
    },
    {
      id: "completion_tokens",
      heading: "Out",
      right: true,
      value: (row) => row.completion_tokens,
      cell: (row) => count(row.completion_tokens),
    },
    {
      id: "amount_micro",
      heading: "Cost",
      right: true,
      value: (row) => row.amount_micro,
      cell: (row) => money(row.amount_micro),
    },
    {
      id: "ttft_ms",
      heading: "First token",
      right: true,
      value: (row) => row.ttft_ms,
      cell: (row) => milliseconds(row.ttft_ms),
    },
    {
      id: "total_ms",
      heading: "In all",
      right: true,
      value: (row) => row.total_ms,
      cell: (row) => milliseconds(row.total_ms),
    },
  ];
}
