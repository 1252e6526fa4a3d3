"""Packs calls of the Lua scripts into bytes on the wire, and reads their answers. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources

import msgspec

from gateway.limits.cost import Cost
from gateway.limits.plan import COUNTERS, DAY_TOKENS, MONEY, NO_LIMIT, Decision, Plan, Status
from storage.valkey_command import pack

_NO_CEILING = 1 << 62
_STATUSES = {status.value: status for status in Status}


def source(name: str) -> str:
    """The text of `reserve` or `upkeep`, after the part that both share."""
    folder = resources.files("gateway.limits")
    return "\n".join(folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in ("state", name))


class Script:
    """Both scripts. loads: the packed commands that load them into a server.

    epoch: this run of this process. lease_ms: how long an epoch lives without a heartbeat. tomb_ms: how long a settled
    id is remembered. percents: shares of a budget to report, ascending. texts: other scripts than the real ones.
    """

    def __init__(
        self,
        epoch: str,
        lease_ms: int,
        tomb_ms: int,
        percents: Sequence[int] = (),
        texts: tuple[str, str] | None = None,
    ) -> None:
        reserve, upkeep = texts or (source("reserve"), source("upkeep"))
        self.loads = (pack(("SCRIPT", "LOAD", reserve)), pack(("SCRIPT", "LOAD", upkeep)))
        self.reserve_sha, self.upkeep_sha = _sha(reserve), _sha(upkeep)
        self.epoch = epoch
        self.lease_ms = lease_ms
        self.tomb_ms = tomb_ms
        self.percents = tuple(percents)
        self.met("")

    def met(self, incarnation: str) -> None:
        """Direct later calls to this run of a server."""
        self.incarnation = incarnation
        self.last_word = _words(incarnation)

    def described(self, plan: Plan) -> bytes:
        """The plan as the scripts read it."""
        rules = [(rule.name, rule.limits, rule.created_ms) for rule in plan.rules]
        return msgspec.msgpack.encode((self.lease_ms, self.tomb_ms, self.percents, rules))

    def upkeep(self, verb: str, keys: Sequence[str], *arguments: str | int | bytes) -> bytes:
        """A packed call of upkeep.lua, where each verb is described."""
        return pack(("EVALSHA", self.upkeep_sha, len(keys), *keys, verb, *arguments, self.incarnation))


class Calls:
    """Packs the calls of one plan. The constant part, most of the bytes and of a call's cost, is packed once."""

    def __init__(self, script: Script, plan: Plan) -> None:
        self.plan = plan
        self._script = script
        self._described = script.described(plan)
        self._keys = [plan.prefix + "epochs", plan.prefix + "open", *(rule.key for rule in plan.rules)]
        # EVALSHA, sha, number of keys, keys, tomb; verb, epoch, plan, id, four numbers, incarnation
        self._head = b"*%d\r\n" % (3 + len(self._keys) + 1 + 9)
        self._head += _words("EVALSHA", script.reserve_sha, len(self._keys) + 1, *self._keys)
        middle = _words(script.epoch) + b"$%d\r\n%b\r\n" % (len(self._described), self._described)
        self._reserve = _words("reserve") + middle
        self._settle = _words("settle") + middle
        self._look = _words("look") + middle
        self._tomb_prefix = plan.prefix.encode() + b"tomb:"
        lowest = [
            min((rule.limits[at] for rule in plan.rules if rule.limits[at] != NO_LIMIT), default=_NO_CEILING)
            for at in range(len(COUNTERS))
        ]
        self.has_money = lowest[MONEY] != _NO_CEILING
        self._input, self._output, self._micro = lowest[1], lowest[2], lowest[MONEY]
        self._tokens = min(lowest[3], lowest[DAY_TOKENS])

    def fits(self, cost: Cost) -> bool:
        """Whether the cost would fit every limit of the plan if no other request ran."""
        return (
            cost.input_tokens <= self._input
            and cost.output_tokens <= self._output
            and cost.input_tokens + cost.output_tokens <= self._tokens
            and cost.micro <= self._micro
        )

    def reserve(self, reservation_id: str, cost: Cost) -> bytes:
        """The packed call; its reply is for `decision`."""
        return self._one(self._reserve, reservation_id.encode(), 1, cost)

    def settle(self, reservation_id: str, requests: int, used: Cost) -> bytes:
        """The packed call; its reply begins with 1 if it changed something."""
        return self._one(self._settle, reservation_id.encode(), requests, used)

    def look(self) -> bytes:
        """The packed call; its reply is for `decision`, and nothing is taken."""
        return self._one(self._look, b"", 0, Cost())

    def announce(self, reservation_id: str, cost: Cost) -> bytes:
        """The packed call; it replies [1] unless the id was settled."""
        keys = [*self._keys, f"{self.plan.prefix}tomb:{reservation_id}"]
        numbers = (cost.input_tokens, cost.output_tokens, cost.micro)
        return self._script.upkeep("announce", keys, self._script.epoch, self._described, reservation_id, *numbers)

    def _one(self, middle: bytes, reservation_id: bytes, requests: int, cost: Cost) -> bytes:
        tomb = self._tomb_prefix + reservation_id
        a, b, c = b"%d" % cost.input_tokens, b"%d" % cost.output_tokens, b"%d" % cost.micro
        return b"%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n$1\r\n%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
            *(self._head, len(tomb), tomb, middle, len(reservation_id), reservation_id, requests),
            *(len(a), a, len(b), b, len(c), c, self._script.last_word),
        )


def decision(reply: Sequence[int]) -> Decision:
    """The reply to a `reserve` or a `look`."""
    return Decision(_STATUSES[reply[0]], reply[1], reply[2], reply[3], reply[4], tuple(reply[5:]))


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _words(*words: str | int) -> bytes:
    """Words in the form that they have inside a packed command."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in [str(each).encode() for each in words]])
