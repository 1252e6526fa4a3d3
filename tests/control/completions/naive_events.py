"""The plain twin of the event store and of the totals: everything in memory, one rule a line."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

TAKEN = ("select", "select_part")


class Completion(NamedTuple):
    """A row of request_traces, as far as totals read it."""

    request_id: str
    project_id: str
    status: int
    error_code: str | None
    client: str
    language: str | None
    characters: int | None
    total_ms: float


class Report(NamedTuple):
    """One report, as an editor sent it."""

    request_id: str
    project_id: str
    choice_index: int
    view_id: str
    type: str
    characters: int | None


def totals(completions: list[Completion], reports: list[Report]) -> dict[str, int]:
    """Of all these completions together, by the names of AutocompleteTotals; without rate and latency."""
    made = {(each.request_id, each.project_id): each for each in completions if each.status in (200, 499)}
    served = [each for each in made.values() if each.status == 200 and each.error_code != "superseded"]
    showings: dict[tuple[str, str, int, str], list[Report]] = defaultdict(list)
    for report in reports:
        if (report.request_id, report.project_id) in made:
            showings[report.request_id, report.project_id, report.choice_index, report.view_id].append(report)
    accepted = {key: found for key, found in showings.items() if any(each.type in TAKEN for each in found)}
    rejected = [key for key, found in showings.items() if any(each.type == "dismiss" for each in found)]
    return {
        "completions": sum(each.characters != 0 for each in served),
        "empty": sum(each.characters == 0 for each in served),
        "abandoned": sum(each.status == 499 for each in made.values()),
        "superseded": sum(each.error_code == "superseded" for each in made.values()),
        "shown": len(showings),
        "accepted": len(accepted),
        "dismissed": sum(key not in accepted for key in rejected),
        "characters_offered": sum(each.characters or 0 for each in served),
        "characters_kept": sum(_kept(made[key[0], key[1]], found) for key, found in accepted.items()),
    }


def _kept(completion: Completion, found: list[Report]) -> int:
    """Of an accepted showing: what the editor counted, never more than there was; all of a first choice that was taken
    whole without a count."""
    whole = [each.characters for each in found if each.type == "select"]
    told = max((each.characters or 0 for each in found if each.type in TAKEN), default=0)
    length = completion.characters if found[0].choice_index == 0 else None
    if length is None:
        return told
    if whole and all(count is None for count in whole):
        return length
    return min(told, length)
