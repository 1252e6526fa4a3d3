/** What is done to a release by hand: each says first what happens, and wants a reason. */
import { useState } from "react";
import { api, read } from "../../../api/client";
import { Button } from "../../../components/button";
import { TextField } from "../../../components/field";
import { Notice } from "../../../components/notice";
import { ReasonForm, rollBack } from "./reason-form";
import { wholeOf } from "./release-input";
import { type Release, type Step, stepsByHand, verdictOf } from "./release-words";

const DONE: Record<Step["action"], string> = {
  promote: "The release is in its next stage.",
  hold: "The release is held.",
  resume: "The release advances by itself again.",
  roll_back: "The release is rolled back.",
};
const MOST_UNITS = 10_000_000;

export function ReleaseActions({ release }: { release: Release }) {
  const [asked, setAsked] = useState<Step | null>(null);
  return (
    <>
      {stepsByHand(release).map((step) => (
        <Button
          key={step.action}
          kind={
            step.action === "roll_back"
              ? "danger"
              : step.action === "promote" || step.action === "resume"
                ? "primary"
                : undefined
          }
          onClick={() => setAsked(step)}
        >
          {step.label}…
        </Button>
      ))}
      {asked && <ByHand key={asked.action} release={release} step={asked} onClose={() => setAsked(null)} />}
    </>
  );
}

function ByHand({ release, step, onClose }: { release: Release; step: Step; onClose: () => void }) {
  const [more, setMore] = useState("");
  const spent = step.action === "resume" && verdictOf(release)?.decision === "inconclusive";
  const moreUnits = wholeOf(more, 1, MOST_UNITS);
  const act = (reason: string) => {
    const params = { path: { release_id: release.id } };
    const body = { reason };
    switch (step.action) {
      case "promote":
        return read(api.POST("/admin/v1/releases/{release_id}/promote", { params, body }));
      case "hold":
        return read(api.POST("/admin/v1/releases/{release_id}/hold", { params, body }));
      case "roll_back":
        return rollBack(release.id, reason);
      case "resume":
        return read(
          api.POST("/admin/v1/releases/{release_id}/resume", {
            params,
            body: { reason, ...(typeof moreUnits === "number" ? { more_units: moreUnits } : {}) },
          }),
        );
    }
  };
  return (
    <ReasonForm
      title={step.title}
      submit={step.label}
      danger={step.action === "roll_back"}
      act={act}
      done={DONE[step.action]}
      disabled={typeof moreUnits === "string" || (spent && moreUnits === undefined)}
      onClose={onClose}
    >
      <p>{step.says}</p>
      {spent && (
        <>
          <Notice tone="warn" title="Its budget of evidence is spent">
            The release would be held again at once. Grant it more sessions, promote it by hand, or roll it
            back.
          </Notice>
          <TextField
            label="Additional sessions"
            value={more}
            onChange={(event) => setMore(event.currentTarget.value)}
            inputMode="numeric"
            required
            placeholder="100000"
            error={typeof moreUnits === "string" ? moreUnits : null}
          />
        </>
      )}
    </ReasonForm>
  );
}
