"""Keeps the texts where prompts differ, for organizations that have asked for it (`store_prompts`); of others nothing.

Best effort, like the samples. Few are enough: of each template, cause and part one in a while. Whether the organization
still wants it is asked once more by the statement that writes (as gateway/autocomplete/text_store.py does): of one that
has turned it off meanwhile nothing is stored.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

import asyncpg

from gateway.prefixes.excerpt import Excerpt
from gateway.prefixes.observer import PrefixSample

MAX_WAITING = 500
EVERY_S = 60.0
"""Between two texts of the same organization, template, cause and part."""
KNOWN = 10_000
"""Of these, so many are remembered."""
INSERT = """
    WITH wanted AS (
        SELECT id FROM gateway.organizations WHERE id = ANY ($3::uuid[]) AND store_prompts ORDER BY id FOR SHARE)
    INSERT INTO gateway.prefix_texts
        (request_id, project_id, organization_id, template, cause, part, part_number, earlier, later)
    SELECT told.* FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::integer[],
                              $8::text[], $9::text[])
                    AS told (request_id, project_id, organization_id, template, cause, part, part_number, earlier,
                             later)
      JOIN wanted ON wanted.id = told.organization_id
        ON CONFLICT DO NOTHING
"""


class Texts(NamedTuple):
    """A row of `gateway.prefix_texts`."""

    request_id: str
    project_id: str
    organization_id: str
    template: str
    cause: str
    part: str | None
    part_number: int | None
    earlier: str | None
    later: str


class PrefixTexts:
    """A bounded buffer in front of `gateway.prefix_texts`. One per gateway process."""

    def __init__(self) -> None:
        self._waiting: deque[Texts] = deque(maxlen=MAX_WAITING)
        self._last_s: OrderedDict[tuple[str, str, str, str | None], float] = OrderedDict()

    def add(self, sample: PrefixSample, found: Excerpt, at_s: float) -> None:
        """Remember the texts of a difference. at_s: any clock that does not go back."""
        key = sample.organization_id, sample.template, sample.cause, sample.part
        if at_s - self._last_s.get(key, -EVERY_S) < EVERY_S:
            return
        self._last_s[key] = at_s
        self._last_s.move_to_end(key)
        if len(self._last_s) > KNOWN:
            self._last_s.popitem(last=False)
        earlier = None if found.earlier is None else _stored(found.earlier)
        self._waiting.append(
            Texts(
                sample.request_id,
                sample.project_id,
                sample.organization_id,
                sample.template,
                sample.cause,
                sample.part,
                sample.part_number,
                earlier,
                _stored(found.later),
            )
        )

    async def write(self, connection: asyncpg.Connection) -> None:
        """Write what waits. Raises what asyncpg raises; what was not written waits on."""
        if not self._waiting:
            return
        batch = list(self._waiting)
        self._waiting.clear()
        try:
            await connection.execute(INSERT, *(list(column) for column in zip(*batch, strict=True)))
        except BaseException:
            self._waiting.extendleft(reversed(batch))
            raise

    def __bool__(self) -> bool:
        return bool(self._waiting)


def _stored(text: str) -> str:
    """As PostgreSQL takes it: no NUL, and no half of a surrogate pair: one text must not lose its whole batch."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
