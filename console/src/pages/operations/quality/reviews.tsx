/** The queue of reviews: two answers to one question, side by side and blind, until one of them is voted for. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, read, type Schemas } from "../../../api/client";
import { useLive } from "../../../api/live";
import { useAction } from "../../../components/action";
import { Button } from "../../../components/button";
import { CheckField } from "../../../components/field";
import { Filters, TextFilter } from "../../../components/filters";
import { Empty, ErrorNotice, Loading, Notice } from "../../../components/notice";
import { Card, Page } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";
import { count, percent } from "../../../format/number";
import { filtersOf } from "../../../shell/search";
import { Answer, Answers } from "./answers";
import { stageName } from "./release-words";
import { preferenceTold, VOTES } from "./review-words";
import "./quality.css";

type Sums = Schemas["ReviewSums"];
type Vote = Schemas["Vote"];
const route = getRouteApi("/signed/operations/reviews");
const KEPT = "slipstream.review-keys";

export function Reviews() {
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const [cast, setCast] = useState<Vote[]>([]);
  const [byKeys, setByKeys] = useState(() => localStorage.getItem(KEPT) !== "off");
  const next = useQuery({
    queryKey: ["reviews", "next", search],
    queryFn: () => read(api.GET("/admin/v1/reviews/next", { params: { query: search } })),
    // a pair must not change while somebody reads it
    refetchOnWindowFocus: false,
  });
  const sums = useQuery({
    queryKey: ["reviews", "sums", search],
    queryFn: () => read(api.GET("/admin/v1/reviews", { params: { query: search } })),
  });
  const review = next.data?.review ?? null;
  useLive(["reviews"], next.data && review === null ? [["reviews"]] : [["reviews", "sums"]]);
  const vote = useAction(
    ({ id, choice }: { id: string; choice: Vote["choice"] }) =>
      read(
        api.POST("/admin/v1/reviews/{review_id}/votes", {
          params: { path: { review_id: id } },
          body: { choice },
        }),
      ),
    { stale: ["reviews"], then: (made) => setCast((all) => [...all, made]) },
  );
  const busy = vote.isPending || next.isFetching;
  const choose = (choice: Vote["choice"]) => {
    if (review === null || busy) return;
    // its texts may be gone by now: then there is another pair
    vote.mutate({ id: review.id, choice }, { onError: () => void next.refetch() });
  };
  useEffect(() => {
    if (!byKeys) return;
    const hear = (event: KeyboardEvent) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
      if (event.target instanceof Element && event.target.closest("input, select, textarea, dialog")) return;
      const found = VOTES.find((each) => each.key === event.key);
      if (found) choose(found.choice);
    };
    addEventListener("keydown", hear);
    return () => removeEventListener("keydown", hear);
  });
  const waiting = next.data?.waiting ?? 0;
  const last = cast.at(-1);
  return (
    <Page
      title="Reviews"
      about="Which of two answers is better? One is the candidate’s; the vote reveals which. A vote is final."
    >
      <Filters>
        <TextFilter
          label="Model"
          value={search.model}
          onChange={(model) => void navigate({ search: (old) => ({ ...old, model }), replace: true })}
        />
        <TextFilter
          label="Release’s id"
          value={search.release}
          onChange={(release) => void navigate({ search: (old) => ({ ...old, release }), replace: true })}
        />
        <CheckField
          label="Vote with the keys 1 to 5"
          checked={byKeys}
          onChange={(event) => {
            const on = event.currentTarget.checked;
            localStorage.setItem(KEPT, on ? "on" : "off");
            setByKeys(on);
          }}
        />
      </Filters>
      <div className="stack">
        {last && (
          <output className="review-told">
            <Notice tone="good">{preferenceTold(last)}</Notice>
          </output>
        )}
        {next.error ? (
          <ErrorNotice error={next.error} retry={() => void next.refetch()} />
        ) : !next.data ? (
          <Loading lines={8} />
        ) : review === null ? (
          <div className="table-frame">
            <Empty title={cast.length > 0 ? "You have voted on every pair" : "Nothing to review"}>
              Pairs come from running releases and projects with <code>allow_reviews</code>, once{" "}
              <code>gateway.shadow.review_share</code> is above 0. New pairs appear here by themselves.
            </Empty>
          </div>
        ) : (
          <Card
            title={`${review.model}: which answer is better?`}
            about={
              <>
                {count(waiting)} {waiting === 1 ? "pair is" : "pairs are"} waiting for you
                {cast.length > 0 && <>, {count(cast.length)} voted on so far</>} · asked{" "}
                <Time at={review.recorded_at} /> · {count(review.votes)} votes by others
              </>
            }
          >
            <div className="stack">
              {cast.length > 0 && (
                <span className="meter">
                  <i style={{ width: `${(100 * cast.length) / (cast.length + waiting)}%` }} />
                </span>
              )}
              <Answer title="Asked" text={review.prompt} />
              <Answers>
                <Answer title="Left" text={review.left} />
                <Answer title="Right" text={review.right} />
              </Answers>
              <fieldset className="votes" aria-label="Your vote">
                {VOTES.map((each) => (
                  <Button
                    key={each.choice}
                    kind={each.choice === "left" || each.choice === "right" ? "primary" : undefined}
                    aria-keyshortcuts={byKeys ? each.key : undefined}
                    disabled={busy}
                    onClick={() => choose(each.choice)}
                  >
                    {each.label}
                    {byKeys && (
                      <span aria-hidden="true">
                        <kbd>{each.key}</kbd>
                      </span>
                    )}
                  </Button>
                ))}
              </fieldset>
            </div>
          </Card>
        )}
        <section className="stack-tight">
          <h2>Votes so far</h2>
          {sums.error ? (
            <ErrorNotice error={sums.error} retry={() => void sums.refetch()} />
          ) : !sums.data ? (
            <Loading lines={3} />
          ) : (
            <Table
              label="Votes by release, model and stage"
              columns={COLUMNS}
              list={sums.data.data}
              rowKey={(row) => `${row.release} ${row.model} ${row.stage_share}`}
              csvName="reviews"
              empty={<Empty title="No reviews yet">The sums of votes appear here, without texts.</Empty>}
            />
          )}
        </section>
      </div>
    </Page>
  );
}

const counted = (
  id: "reviews" | "waiting" | "better" | "worse" | "both" | "neither" | "skipped",
  heading: string,
) => ({
  id,
  heading,
  right: true,
  value: (row: Sums) => row[id],
  cell: (row: Sums) => count(row[id]),
});

const COLUMNS: Column<Sums>[] = [
  {
    id: "model",
    heading: "Model",
    value: (row) => row.model,
    cell: (row) => <span className="primary-cell">{row.model}</span>,
  },
  {
    id: "release",
    heading: "Release",
    value: (row) => row.release,
    cell: (row) =>
      row.release ? (
        <code className="small">{row.release.slice(0, 8)}</code>
      ) : (
        <span className="quiet">none</span>
      ),
  },
  {
    id: "stage_share",
    heading: "Stage",
    value: (row) => row.stage_share,
    cell: (row) =>
      row.stage_share === null ? <span className="quiet">not recorded</span> : stageName(row.stage_share),
  },
  counted("reviews", "Pairs"),
  counted("waiting", "With texts"),
  counted("better", "Candidate better"),
  counted("worse", "Candidate worse"),
  counted("both", "Both good"),
  counted("neither", "Both bad"),
  counted("skipped", "Skipped"),
  {
    id: "preferred",
    heading: "Prefer the candidate",
    right: true,
    value: (row) => row.preferred.value,
    cell: (row) =>
      row.preferred.value === null ? (
        <span className="quiet">no decisive vote</span>
      ) : (
        <>
          {percent(row.preferred.value, 0)}{" "}
          <span className="quiet">
            ({percent(row.preferred.lower, 0)} to {percent(row.preferred.upper, 0)})
          </span>
        </>
      ),
  },
];
