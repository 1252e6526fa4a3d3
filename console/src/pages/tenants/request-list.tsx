/** A page of requests: of an organization, or of all of them. */
import { type FormEvent, type ReactNode, useState } from "react";
import { type ApiPage, useList } from "../../api/list";
import { useLive } from "../../api/live";
import { Button } from "../../components/button";
import { TextField } from "../../components/field";
import { Filters, SelectFilter, TextFilter } from "../../components/filters";
import { Empty } from "../../components/notice";
import { Card, Page } from "../../components/page";
import { type Column, Table } from "../../components/table";
import { useMoney } from "../../shell/money";
import { LOOKS, type Look, lengthMs } from "../operations/serving/choices";
import { LOOK_NAMES } from "./diagnosis-of";
import { ModelFilter } from "./model-choice";
import { requestColumn, requestColumns, type Summary } from "./request-columns";

const MINUTE_MS = 60_000;

/** The filters that both lists have. */
export interface RequestSearch {
  status?: string | undefined;
  error_code?: string | undefined;
  model?: string | undefined;
  session?: string | undefined;
  since?: Look | undefined;
}

interface RequestListProps {
  title: string;
  about: string;
  /** Under "Why was a request limited, slow or wrong?". */
  byId: string;
  search: RequestSearch;
  set: (part: RequestSearch) => void;
  /** What requests are asked for without a choice of when they arrived. */
  anyTime: string;
  /** Filters of this list alone, and what they ask for. */
  filters: ReactNode;
  filtered: Record<string, string | undefined>;
  read: (query: Query) => Promise<ApiPage<Summary>>;
  /** Whose they are; all organizations', unless given. */
  organizationId?: string;
  /** Where one of them is looked at. */
  place: (requestId: string) => string;
  onFind: (requestId: string) => void;
  column?: Column<Summary>;
  empty: string;
}

type Query = Record<string, string | number> & { limit: number };

export function RequestList(props: RequestListProps) {
  const { search, set } = props;
  const money = useMoney();
  const whose = props.organizationId ?? "deployment";
  // by whole minutes: the query's key is the same until then
  const minute = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const query = Object.fromEntries(
    Object.entries({
      ...props.filtered,
      status: search.status && /^[1-5]\d\d$/.test(search.status) ? search.status : undefined,
      error_code: search.error_code,
      model: search.model,
      session: search.session,
      start: search.since && new Date(minute - lengthMs(search.since)).toISOString(),
    }).flatMap(([name, value]) => (value ? [[name, value]] : [])),
  );
  useLive(["requests"], [["requests", whose]]);
  const list = useList(["requests", whose, query], (cursor) =>
    props.read({ limit: 100, ...(cursor === undefined ? {} : { cursor }), ...query }),
  );
  const columns: Column<Summary>[] = [
    requestColumn(props.place),
    ...(props.column ? [props.column] : []),
    ...requestColumns(money),
  ];
  return (
    <Page title={props.title} about={props.about}>
      <div className="stack">
        <Card title="Why was a request limited, slow or wrong?" about={props.byId}>
          <ById onFind={props.onFind} />
        </Card>
        <div>
          <Filters>
            {props.filters}
            <SelectFilter
              label="Arrived"
              all={props.anyTime}
              options={LOOKS.filter((each) => LOOK_NAMES[each] !== props.anyTime)}
              names={LOOK_NAMES}
              value={search.since}
              onChange={(since) => set({ since })}
            />
            <ModelFilter
              organizationId={props.organizationId}
              value={search.model}
              onChange={(model) => set({ model })}
            />
            <TextFilter
              label="Status"
              placeholder="429"
              value={search.status}
              onChange={(status) => set({ status })}
            />
            <TextFilter
              label="Error code"
              placeholder="rate_limit_exceeded"
              value={search.error_code}
              onChange={(error_code) => set({ error_code })}
            />
            <TextFilter label="Session" value={search.session} onChange={(session) => set({ session })} />
          </Filters>
          <Table
            label="Requests"
            columns={columns}
            list={list}
            rowKey={(row) => row.request_id}
            csvName={props.title.toLowerCase()}
            empty={<Empty title="No request matches">{props.empty}</Empty>}
          />
        </div>
      </div>
    </Page>
  );
}

function ById({ onFind }: { onFind: (requestId: string) => void }) {
  const [id, setId] = useState("");
  const go = (event: FormEvent) => {
    event.preventDefault();
    if (id.trim() !== "") onFind(id.trim());
  };
  return (
    <form className="by-id" onSubmit={go}>
      <TextField label="Request’s id" value={id} onChange={(event) => setId(event.currentTarget.value)} />
      <Button type="submit" kind="primary">
        Find out
      </Button>
    </form>
  );
}
