/** A release's stages in a row: which are behind it, where it stands, what it has of what it needs. */
import { count, duration } from "../../../format/number";
import { placesOf, progressOf, type Release, type StagePlace, stageName, timeLeft } from "./release-words";

const SAID: Record<StagePlace, string> = {
  done: "done",
  now: "now",
  stopped: "stopped here",
  ahead: "to come",
  unreached: "not reached",
};

export function StageTrack({ release }: { release: Release }) {
  const places = placesOf(release.state, release.stage, release.stages.length);
  const progress = progressOf(release);
  const left = timeLeft(progress, (Date.now() - Date.parse(release.stage_began_at)) / 1000);
  return (
    <ol className="stage-track" aria-label="Stages">
      {release.stages.map((share, at) => {
        const place = places[at] ?? "ahead";
        const consumed = release.consumed.find((each) => each.stage === at);
        return (
          <li key={share} data-place={place} aria-current={place === "now" ? "step" : undefined}>
            <b>{share === 1 ? "all traffic" : stageName(share)}</b>
            <span className="stage-state">
              {place === "now" && release.state === "held" ? "held" : SAID[place]}
            </span>
            {place === "now" && progress.length > 0 ? (
              <>
                {progress.map((each) => (
                  <span key={each.what} className="stage-progress">
                    <span>
                      {each.what} {count(Math.min(each.units, each.least))} of {count(each.least)}
                    </span>
                    <span className="meter">
                      <i style={{ width: `${Math.min(100, (100 * each.units) / each.least)}%` }} />
                    </span>
                  </span>
                ))}
                {left !== null && <small>about {duration(left)} left at this rate</small>}
              </>
            ) : (
              consumed && consumed.requests > 0 && <small>{count(consumed.requests)} requests</small>
            )}
          </li>
        );
      })}
    </ol>
  );
}
