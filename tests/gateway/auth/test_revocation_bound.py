"""The promise itself, against a simulated database and channel: memory never shows a key as it was `trust_s` ago, nor
as it was before a change that was announced.

Changes, lookups, announcements, heartbeats, losses and reconnections interleave in every order; time is simulated.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.errors import AuthUnavailable, RevokedKey, TenantDisabled
from contracts.generation import Caller
from gateway.auth.config import AuthConfig
from gateway.auth.key_record import KeyRecord, Reason, Refusal, tenants_of
from gateway.auth.keyring import Keyring
from gateway.auth.keys import mint
from gateway.limits.levels import Level, Levels, Limits, Rule
from tests.examples import examples

PEPPER = b"p" * 32
TRUST_S = LOOKUP_TIMEOUT_S = 10.0
"""Whole seconds, so that simulated time has exact edges."""
KEYS = [mint(PEPPER) for _ in range(3)]
CALLERS = [Caller("o", "p", "0"), Caller("o", "q", "1"), Caller("n", "r", "2")]
TENANTS = ["project:p", "project:q", "project:r", "organization:o", "organization:n"]
BY_HASH = {key.hash: number for number, key in enumerate(KEYS)}
DISABLED = Reason.PROJECT_DISABLED
NUMBERS = st.integers(0, len(KEYS) - 1)
BEAT = "beat"


class RevocationMachine(RuleBasedStateMachine):
    """`truth` is the table, with history; `stream` what the server has sent and the gateway not yet read."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 100.0
        self.changes = 0
        self.truth: list[list[tuple[float, KeyRecord | Refusal]]] = [[(0.0, self.version(n))] for n in range(len(KEYS))]
        self.connected = False
        self.heard = [0] * len(KEYS)
        """For each key, which state of its history the gateway has been told of at least."""
        self.stream: list[tuple[str, float, dict[int, int]]] = []
        """(payload, when the beat began, the state of each key it concerns)"""
        self.beat_began_s: float | None = None
        self.answers: list[tuple[asyncio.Future[bool], float]] = []
        self.callers: list[tuple[int, asyncio.Task[KeyRecord]]] = []
        config = AuthConfig(cached_keys=2, trust_s=TRUST_S)
        self.keyring = Keyring("postgresql:///none", PEPPER, config, monotonic=lambda: self.now)
        self.keyring._lookups._read = self.ask

    def version(self, number: int) -> KeyRecord:
        return KeyRecord(
            CALLERS[number],
            Levels.of("o", [Rule(Level.KEY, str(number), None, Limits(requests_per_minute=self.changes + 1))]),
        )

    async def ask(self, hashes: Sequence[bytes]) -> Any:
        """What the rows hold now, delivered when `answer` says so."""
        arrival = self.loop.create_future()
        snapshot = {key_hash: self.truth[BY_HASH[key_hash]][-1][1] for key_hash in hashes}
        self.answers.append((arrival, self.now))
        return snapshot if await arrival else None

    def settle(self) -> None:
        for _ in range(12):
            self.loop.run_until_complete(asyncio.sleep(0))

    @rule(number=NUMBERS, revoke=st.booleans())
    def change(self, number: int, revoke: bool) -> None:
        self.write([number], Reason.REVOKED if revoke else None, KEYS[number].hash.hex())

    @rule(tenant=st.sampled_from(TENANTS), disable=st.booleans())
    def change_all_of_a_tenant(self, tenant: str, disable: bool) -> None:
        """Announced once, by the tenant's name."""
        numbers = [number for number, caller in enumerate(CALLERS) if tenant in tenants_of(Refusal(DISABLED, caller))]
        self.write(numbers, DISABLED if disable else None, tenant)

    def write(self, numbers: list[int], refused: Reason | None, payload: str) -> None:
        """A change of these keys in one transaction, and its announcement."""
        self.changes += 1
        for number in numbers:
            new = self.version(number) if refused is None else Refusal(refused, CALLERS[number])
            self.truth[number].append((self.now, new))
        if self.connected:
            self.stream.append((payload, 0.0, {number: len(self.truth[number]) - 1 for number in numbers}))

    @precondition(lambda self: self.connected and self.callers)
    @rule(refused=st.booleans(), which=st.sampled_from(["the key", "its project", "its organization"]))
    def change_what_is_being_read(self, refused: bool, which: str) -> None:
        """The race worth meeting often: announced between a question and its answer."""
        number = self.callers[-1][0]
        project, organization = tenants_of(Refusal(DISABLED, CALLERS[number]))
        if which == "the key":
            self.change(number, refused)
        else:
            self.change_all_of_a_tenant(project if which == "its project" else organization, refused)
        while self.stream:
            self.deliver()

    @rule(number=NUMBERS)
    def identify(self, number: int) -> None:
        task = self.loop.create_task(self.keyring.identify(KEYS[number].secret))
        self.callers.append((number, task))
        self.settle()

    @precondition(lambda self: self.answers)
    @rule(arrives=st.booleans(), data=st.data())
    def answer(self, arrives: bool, data: st.DataObject) -> None:
        arrival, began_s = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        arrival.set_result(arrives and self.now < began_s + LOOKUP_TIMEOUT_S)
        self.settle()

    @rule(seconds=st.sampled_from([1.0, 4.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.connected and self.beat_began_s is None)
    @rule()
    def heartbeat_begins(self) -> None:
        self.beat_began_s = self.now

    @precondition(lambda self: self.connected and self.beat_began_s is not None)
    @rule()
    def server_answers_the_heartbeat(self) -> None:
        assert self.beat_began_s is not None
        self.stream.append((BEAT, self.beat_began_s, {}))
        self.beat_began_s = None

    @precondition(lambda self: self.stream)
    @rule()
    def deliver(self) -> None:
        what, began_s, states = self.stream.pop(0)
        if what == BEAT:
            self.keyring._listener.proven_at_s = began_s
        else:
            for number, state in states.items():
                self.heard[number] = state
            self.keyring._changed(what)
        self.settle()

    @precondition(lambda self: self.connected and self.beat_began_s is None)
    @rule()
    def whole_heartbeat(self) -> None:
        """Nothing gets in between: as it nearly always goes."""
        self.heartbeat_begins()
        self.server_answers_the_heartbeat()
        while self.stream:
            self.deliver()

    @precondition(lambda self: self.connected)
    @rule()
    def lose(self) -> None:
        """What was on its way is lost, and the gateway is not told."""
        self.connected, self.stream, self.beat_began_s = False, [], None

    @precondition(lambda self: not self.connected)
    @rule()
    def join(self) -> None:
        self.connected = True
        self.heard = [len(history) - 1 for history in self.truth]
        self.keyring._changed_all()
        self.keyring._listener.proven_at_s = self.now
        self.settle()

    @invariant()
    def memory_is_never_older_than_the_promise(self) -> None:
        for number, key in enumerate(KEYS):
            record = self.keyring.cached(key.secret)
            assert record is None or record in self.recent(number)
            heard = [state for _, state in self.truth[number][self.heard[number] :]]
            assert record is None or record in heard

    @invariant()
    def no_answer_is_older_than_the_promise(self) -> None:
        for number, task in [caller for caller in self.callers if caller[1].done()]:
            self.callers.remove((number, task))
            try:
                outcome: KeyRecord | Refusal = task.result()
            except RevokedKey:
                outcome = Refusal(Reason.REVOKED, CALLERS[number])
            except TenantDisabled:
                outcome = Refusal(DISABLED, CALLERS[number])
            except AuthUnavailable:
                continue
            assert outcome in self.recent(number)
        assert len(self.keyring._lookups._flights) <= len(self.callers)

    def recent(self, number: int) -> list[KeyRecord | Refusal]:
        """The row's states that held at some moment of the last TRUST_S seconds."""
        history = self.truth[number]
        superseded = itertools.pairwise(history)
        return [history[-1][1]] + [before for (_, before), (at, _) in superseded if at > self.now - TRUST_S]

    def teardown(self) -> None:
        self.loop.run_until_complete(self.close())
        self.loop.close()

    async def close(self) -> None:
        for arrival, _ in self.answers:
            arrival.set_result(False)
        await asyncio.gather(*(task for _, task in self.callers), return_exceptions=True)
        await self.keyring.stop()


RevocationMachine.TestCase.settings = examples(nightly=300, gate=30, stateful_step_count=40)
TestRevocationBound = RevocationMachine.TestCase
