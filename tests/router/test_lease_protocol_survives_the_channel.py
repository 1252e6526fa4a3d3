"""The lease protocol over a channel that drops, duplicates and reorders, with restarts on both sides.

The real core and the real gateway book, with a modelled network between them. A stream keeps order and loses messages
only when it breaks; the model is harsher, except that a stream on which something was lost does break in the end.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contracts.desired_state import DesiredState
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.proto import router_pb2 as pb
from contracts.usage import Finish, Usage
from engines.drivers.base import Load
from router.book import Crossing, Ending, LeaseBook
from router.config import RouterConfig
from router.core.decisions import Disconnect, Granted, PollNow, ProbeGeneration, Refused, ReplayKvEvents, Welcomed
from router.core.dispatcher import Dispatcher
from router.core.events import Event, GatewayDisconnected, ReplicaPolled, Tick
from router.policies import registry
from router.protocol import codec, messages
from tests.examples import examples
from tests.router.fakes import ask, fleet, queued
from tests.router.integrity import check_integrity

REPLICAS = ("r1", "r2", "r3")
MARGIN_S = 1.0
CONFIG = RouterConfig(queue_length=6, grace_s=5.0, failure_threshold=2)


class Wire:
    """One stream: what is on its way in each direction."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.to_router: list[pb.GatewayMessage | Ending] = []
        self.to_gateway: list[pb.RouterMessage] = []
        self.heard_hello = False
        self.lossy = False


class Gateway:
    """One gateway process after another under one id, driving the real book."""

    def __init__(self, gateway_id: str) -> None:
        self.gateway_id = gateway_id
        self.processes = 0
        self.state: DesiredState | None = None
        self.restart()

    def restart(self) -> None:
        self.processes += 1
        self.epoch = f"{self.gateway_id}-epoch-{self.processes}"
        self.book = LeaseBook(endings_limit=100)
        self.wire: Wire | None = None
        self.welcomed = False
        self.unanswered: set[str] = set()

    def send(self, item: pb.GatewayMessage | Ending) -> None:
        if self.welcomed and self.wire is not None:
            self.wire.to_router.append(item)
        elif isinstance(item, Ending):
            self.book.remember((item,))

    def lose_wire(self) -> Wire | None:
        wire, self.wire, self.welcomed = self.wire, None, False
        if wire is not None:
            self.book.remember(item for item in wire.to_router if isinstance(item, Ending))
        return wire


class LeaseProtocol(RuleBasedStateMachine):
    """Any interleaving of asks, answers and lost connections between two gateways and one router."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.asks = 0
        self.connections = 0
        self.version = 1
        self.states = {1: fleet(1, replicas=REPLICAS, max_concurrency=2)}
        self.router = Dispatcher(CONFIG, registry.create("prefix"))
        self.gateways = [Gateway("a"), Gateway("b")]
        self.wires: dict[int, tuple[Gateway, Wire]] = {}
        """Streams the router still believes in."""
        self.placed: dict[str, set[str]] = defaultdict(set)
        for gateway in self.gateways:
            gateway.state = self.states[1]
            self.connect(gateway)
            self.deliver_all()
        for replica in REPLICAS:
            self.to_core(ReplicaPolled(replica, True))

    # the machinery of the model

    def to_core(self, event: Event) -> None:
        for decision in self.router.handle(event, self.now):
            if isinstance(decision, PollNow | ProbeGeneration | ReplayKvEvents):
                continue
            held = self.wires.get(decision.connection)
            if held is None:
                continue
            gateway, stream = held
            if isinstance(decision, Welcomed):
                stream.to_gateway.append(messages.welcome("router", CONFIG.grace_s, decision.version))
            elif isinstance(decision, Granted | Refused):
                stream.to_gateway.append(codec.answer(decision))
            elif isinstance(decision, Disconnect):
                self.cut(gateway, stream, noticed=True)

    def connect(self, gateway: Gateway) -> None:
        self.connections += 1
        gateway.wire = Wire(self.connections)
        gateway.wire.to_router.append(gateway.book.hello(gateway.gateway_id, gateway.epoch))
        self.wires[gateway.wire.number] = (gateway, gateway.wire)

    def cut(self, gateway: Gateway, stream: Wire, noticed: bool) -> None:
        """The gateway loses the stream; the router too when `noticed`, else it goes on reading what was sent."""
        if gateway.wire is stream:
            gateway.lose_wire()
        if noticed and self.wires.pop(stream.number, None) is not None and stream.heard_hello:
            self.to_core(GatewayDisconnected(stream.number))

    def router_reads(self, stream: Wire, item: pb.GatewayMessage | Ending) -> None:
        message = messages.release(item.end) if isinstance(item, Ending) else item
        # through bytes, as on the line
        message = pb.GatewayMessage.FromString(message.SerializeToString())
        if message.WhichOneof("body") == "hello":
            stream.heard_hello = True
            self.to_core(codec.hello_event(stream.number, message.hello))
        else:
            self.to_core(codec.event(stream.number, message))

    def gateway_reads(self, gateway: Gateway, stream: Wire, message: pb.RouterMessage) -> None:
        if gateway.wire is not stream:
            return
        body = message.WhichOneof("body")
        if body == "welcome":
            if gateway.welcomed:
                return
            gateway.welcomed = True
            if gateway.state is not None and gateway.state.version > message.welcome.desired_state_version:
                gateway.send(messages.desired_state(gateway.state))
            for ending in gateway.book.take_endings():
                gateway.send(ending)
            for again in gateway.book.asks(self.now):
                gateway.send(again)
        elif body == "grant":
            lease = messages.lease_of(message.grant)
            crossing = gateway.book.granted(lease)
            if crossing is Crossing.UNWANTED:
                gateway.send(messages.cancel(lease.lease_id))
            elif crossing is Crossing.AWAITED:
                gateway.unanswered.discard(lease.lease_id)
                self.placed[lease.lease_id].add(lease.engine.replica_id)
        elif body == "shed" and gateway.book.refused(message.shed.lease_id):
            gateway.unanswered.discard(message.shed.lease_id)

    def deliver_all(self) -> None:
        """Everything on its way arrives, in order, until nothing moves."""
        moved = True
        while moved:
            moved = False
            for gateway, stream in list(self.wires.values()):
                while stream.to_router and stream.number in self.wires:
                    moved = True
                    self.router_reads(stream, stream.to_router.pop(0))
                while stream.to_gateway:
                    moved = True
                    self.gateway_reads(gateway, stream, stream.to_gateway.pop(0))

    # what gateways do

    gateway_index = st.integers(0, 1)
    pick = st.integers(0, 1_000)

    @rule(which=gateway_index, count=st.integers(1, 5), deadline_s=st.sampled_from([10.0, 100.0]))
    def gateway_asks_several_times(self, which: int, count: int, deadline_s: float) -> None:
        for _ in range(count):
            self.gateway_asks(which, "m", deadline_s, set())

    @rule(
        which=gateway_index,
        model=st.sampled_from(["m", "m", "m", "m-alias", "nowhere"]),
        deadline_s=st.sampled_from([100.0, 10.0, 1.0, 0.0]),
        excluded=st.sets(st.sampled_from(REPLICAS), max_size=3),
    )
    def gateway_asks(self, which: int, model: str, deadline_s: float, excluded: set[str]) -> None:
        self.asks += 1
        gateway = self.gateways[which]
        plain = ask(
            f"{gateway.epoch}-{self.asks}", model=model, deadline_s=deadline_s, excluded=tuple(sorted(excluded))
        )
        number = self.asks
        wanted: LeaseRequest = msgspec.structs.replace(
            plain,
            prompt_tokens=100 * (number % 5),
            prefix_hashes=b"".join(bytes([number % 2, block] * 8) for block in range(number % 5)),
            organization_id=f"tenant {number % 3}",
            priority=number % 7 // 6,
            affinity=b"file %d" % (number % 4),
            idle_replica=REPLICAS[number % 3] if number % 5 == 4 else "",
        )
        gateway.book.asked(wanted, self.now)
        gateway.unanswered.add(wanted.lease_id)
        gateway.send(messages.acquire(wanted, wanted.deadline_s))

    @rule(which=gateway_index, pick=pick)
    def gateway_withdraws(self, which: int, pick: int) -> None:
        gateway = self.gateways[which]
        candidates = [*gateway.book.pending, *gateway.book.live]
        if candidates:
            self.withdraw(gateway, candidates[pick % len(candidates)])

    def withdraw(self, gateway: Gateway, lease_id: str) -> None:
        gateway.unanswered.discard(lease_id)
        gateway.send(gateway.book.withdrawn(lease_id) or messages.cancel(lease_id))

    @rule(which=gateway_index, pick=pick, fault=st.booleans())
    def gateway_releases(self, which: int, pick: int, fault: bool) -> None:
        fault = fault and pick % 3 == 2
        gateway = self.gateways[which]
        if gateway.book.live:
            lease_id = list(gateway.book.live)[pick % len(gateway.book.live)]
            finish = Finish.ENGINE_ERROR if fault else Finish.COMPLETE
            usage = Usage(pick % 500, pick % 50, pick % 300)
            ending = gateway.book.released(LeaseEnd(lease_id, finish, usage, engine_fault=fault))
            assert ending is not None
            gateway.send(ending)

    @rule(which=gateway_index, pick=pick)
    def gateway_sees_first_token(self, which: int, pick: int) -> None:
        gateway = self.gateways[which]
        if gateway.book.live:
            gateway.send(messages.first_token(list(gateway.book.live)[pick % len(gateway.book.live)], 0.1, pick % 500))

    @rule(which=gateway_index)
    def gateway_reconnects(self, which: int) -> None:
        if self.gateways[which].wire is None:
            self.connect(self.gateways[which])

    @rule(which=gateway_index, noticed=st.booleans(), regrets=st.booleans())
    def stream_breaks(self, which: int, noticed: bool, regrets: bool) -> None:
        """regrets: those who waited do not stay for the reconnect."""
        gateway = self.gateways[which]
        if gateway.wire is not None:
            self.cut(gateway, gateway.wire, noticed)
        if regrets:
            for lease_id in list(gateway.book.pending):
                self.withdraw(gateway, lease_id)

    @rule(which=gateway_index, noticed=st.booleans())
    def gateway_is_killed_and_restarted(self, which: int, noticed: bool) -> None:
        gateway = self.gateways[which]
        if gateway.wire is not None:
            self.cut(gateway, gateway.wire, noticed)
        gateway.restart()

    @rule(
        which=gateway_index,
        replicas=st.sets(st.sampled_from(REPLICAS)),
        places=st.integers(1, 3),
        drained=pick,
        seldom=st.integers(0, 3),
    )
    def state_is_published(self, which: int, replicas: set[str], places: int, drained: int, seldom: int) -> None:
        if seldom < 3:
            return
        self.version += 1
        weights = {REPLICAS[drained % 3]: 0.0} if drained % 2 else {}
        state = fleet(self.version, replicas=tuple(sorted(replicas)), max_concurrency=places, **weights)
        self.gateways[which].state = state
        self.gateways[which].send(messages.desired_state(state))

    # what the world does

    def some_wire(self, pick: int) -> tuple[Gateway, Wire] | None:
        wires = list(self.wires.values())
        return wires[pick % len(wires)] if wires else None

    @rule(pick=pick, index=pick, copy=st.booleans())
    def message_reaches_router(self, pick: int, index: int, copy: bool) -> None:
        held = self.some_wire(pick)
        if held is None or not held[1].to_router:
            return
        stream = held[1]
        # the service reads a hello before anything else
        index = index % len(stream.to_router) if stream.heard_hello else 0
        item = stream.to_router[index] if copy else stream.to_router.pop(index)
        self.router_reads(stream, item)

    @rule(pick=pick, index=pick, copy=st.booleans())
    def message_reaches_gateway(self, pick: int, index: int, copy: bool) -> None:
        held = self.some_wire(pick)
        if held is None or not held[1].to_gateway:
            return
        gateway, stream = held
        # the client reads a welcome before anything else
        index = index % len(stream.to_gateway) if gateway.welcomed else 0
        message = stream.to_gateway[index] if copy else stream.to_gateway.pop(index)
        self.gateway_reads(gateway, stream, message)

    @rule(pick=pick, index=pick, towards_router=st.booleans())
    def message_is_lost(self, pick: int, index: int, towards_router: bool) -> None:
        held = self.some_wire(pick)
        if held is None:
            return
        stream = held[1]
        stream.lossy = True
        if towards_router and stream.to_router and stream.heard_hello:
            stream.to_router.pop(index % len(stream.to_router))
        elif not towards_router and stream.to_gateway:
            stream.to_gateway.pop(index % len(stream.to_gateway))

    @rule()
    def everything_arrives(self) -> None:
        self.deliver_all()

    @rule()
    def router_reads_everything(self) -> None:
        for _, stream in list(self.wires.values()):
            while stream.to_router and stream.number in self.wires:
                self.router_reads(stream, stream.to_router.pop(0))

    @rule()
    def everyone_is_well(self) -> None:
        self.deliver_all()
        for replica in REPLICAS:
            self.to_core(ReplicaPolled(replica, True))

    @rule()
    def router_is_killed_and_restarted(self) -> None:
        for gateway in self.gateways:
            gateway.lose_wire()
        self.wires.clear()
        self.router = Dispatcher(CONFIG, registry.create("prefix"))

    @rule(pick=pick)
    def router_notices_a_dead_stream(self, pick: int) -> None:
        dead = [(gateway, stream) for gateway, stream in self.wires.values() if gateway.wire is not stream]
        if dead:
            self.cut(*dead[pick % len(dead)], noticed=True)

    @rule(replica=st.sampled_from(REPLICAS), well=st.sampled_from([True, True, False]), running=st.integers(0, 5))
    def replica_is_polled(self, replica: str, well: bool, running: int) -> None:
        load = Load(running, 0, 100 * running, 3_000, running // 5) if well else None
        self.to_core(ReplicaPolled(replica, well, load=load))

    @rule(seconds=st.sampled_from([0.01, 0.5, 2.0, 6.0, 86_400.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.to_core(Tick())
        for gateway in self.gateways:
            for lease_id, pending in list(gateway.book.pending.items()):
                if pending.deadline_at + MARGIN_S <= self.now:
                    self.withdraw(gateway, lease_id)

    # what must hold

    @invariant()
    def the_core_agrees_with_itself(self) -> None:
        check_integrity(self.router)

    @invariant()
    def a_lease_has_one_replica(self) -> None:
        assert all(len(replicas) == 1 for replicas in self.placed.values())

    @invariant()
    def what_nobody_waits_for_never_waits_and_is_where_it_was_wanted(self) -> None:
        for session in self.router.sessions.values():
            assert not any(waiting.ask.idle_replica for waiting in session.waiting.values())
            for live in session.leases.values():
                assert live.ask is None or live.ask.idle_replica in ("", live.replica_id)

    @invariant()
    def nobody_waits_past_the_deadline_at_the_router(self) -> None:
        wakeup = self.router.next_wakeup()
        waiting = [one for session in self.router.sessions.values() for one in session.waiting.values()]
        assert all(wakeup is not None and wakeup <= one.deadline_at for one in waiting)

    @precondition(lambda self: not any(stream.lossy for _, stream in self.wires.values()))
    @rule()
    def calm(self) -> None:
        """Once everything has arrived, both sides hold the same leases."""
        self.settle()

    def settle(self) -> None:
        for _ in range(2):
            for gateway, stream in list(self.wires.values()):
                if stream.lossy or gateway.wire is not stream:
                    self.cut(gateway, stream, noticed=True)
            for gateway in self.gateways:
                if gateway.wire is None:
                    self.connect(gateway)
            self.deliver_all()
        for gateway in self.gateways:
            session = self.router.sessions[gateway.gateway_id]
            assert session.epoch == gateway.epoch
            at_router = {live.lease_id: live.replica_id for live in session.leases.values()}
            at_gateway = {live.lease_id: live.replica_id for live in gateway.book.live.values()}
            assert at_router == at_gateway
            assert set(session.waiting) == set(gateway.book.pending) == gateway.unanswered
            assert not gateway.book.endings
        assert set(self.router.sessions) == {gateway.gateway_id for gateway in self.gateways}
        held = sum(replica.leases for replica in self.router.fleet.replicas.values())
        assert held == sum(len(gateway.book.live) for gateway in self.gateways)

    def teardown(self) -> None:
        if not hasattr(self, "router"):
            return
        self.settle()
        for gateway in self.gateways:
            for lease_id in list(gateway.book.live):
                ending = gateway.book.released(LeaseEnd(lease_id, Finish.COMPLETE))
                assert ending is not None
                gateway.send(ending)
        for _ in range(5):  # breakers rest, and open pools, at times of their own
            self.now += 1_000.0
            self.to_core(Tick())
        self.deliver_all()
        for gateway in self.gateways:
            for lease_id in list(gateway.book.live):  # granted by the releases above
                gateway.send(gateway.book.withdrawn(lease_id) or messages.cancel(lease_id))
        self.deliver_all()
        assert queued(self.router) == 0, "the queue drains"
        assert all(replica.leases == 0 for replica in self.router.fleet.replicas.values()), "no lease leaks"
        assert not any(gateway.unanswered for gateway in self.gateways), "every ask has its answer"
        check_integrity(self.router)


LeaseProtocol.TestCase.settings = examples(nightly=150, gate=20, stateful_step_count=80)
test_lease_protocol_survives_the_channel = LeaseProtocol.TestCase
