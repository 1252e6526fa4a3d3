/** What both pools' customers waited since a release began, in milliseconds. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../../api/client";
import { Empty, ErrorNotice, Loading } from "../../../components/notice";
import { Card } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { change, count, milliseconds, signedPercent } from "../../../format/number";
import { type LatencyRow, latenciesOf, type Release } from "./release-words";

export function ReleaseLatency({ release, began }: { release: Release; began: string }) {
  const figures = useQuery({
    queryKey: ["release-latency", release.id],
    queryFn: () =>
      read(
        api.GET("/admin/v1/serving", {
          params: {
            query: {
              start: began,
              ...(release.ended_at ? { end: release.ended_at } : {}),
              bucket: "all",
              group_by: ["pool"],
              model: release.model,
            },
          },
        }),
      ),
  });
  const of = (pool: string) => figures.data?.data.find((each) => each.pool === pool);
  const candidate = of(release.candidate_pool);
  const baseline = of(release.baseline_pool);
  const requests = `${count(candidate?.requests ?? 0)} requests of ${release.candidate_pool}, ${count(baseline?.requests ?? 0)} of ${release.baseline_pool}`;
  return (
    <Card
      title="Latency of candidate and baseline"
      about={`All responses of both pools since the release began: ${requests}.`}
    >
      {figures.error ? (
        <ErrorNotice error={figures.error} retry={() => void figures.refetch()} />
      ) : !figures.data ? (
        <Loading lines={4} />
      ) : (
        <Table
          label="Latency of candidate and baseline"
          columns={COLUMNS}
          list={latenciesOf(candidate, baseline)}
          rowKey={(row) => row.name}
          csvName={`latency of ${release.id}`}
          empty={
            <Empty title="No request has been answered yet">
              The figures appear with the first responses.
            </Empty>
          }
          foot="These figures decide nothing, because the sessions of one arm may be longer. The tests below decide."
        />
      )}
    </Card>
  );
}

const ms = (id: "candidate" | "baseline", heading: string): Column<LatencyRow> => ({
  id,
  heading,
  right: true,
  value: (row) => row[id],
  cell: (row) => milliseconds(row[id]),
});

const COLUMNS: Column<LatencyRow>[] = [
  {
    id: "measure",
    heading: "Measure",
    value: (row) => row.name,
    cell: (row) => <span className="primary-cell">{row.name}</span>,
  },
  ms("candidate", "Candidate"),
  ms("baseline", "Baseline"),
  {
    id: "difference",
    heading: "Candidate is slower by",
    right: true,
    value: (row) => (row.candidate === null || row.baseline === null ? null : row.candidate - row.baseline),
    cell: (row) =>
      row.candidate === null || row.baseline === null
        ? "–"
        : signedPercent(change(row.baseline, row.candidate)),
  },
];
