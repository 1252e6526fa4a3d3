"""Learns how many concurrent requests to send to an upstream that reports no limit, from the gain of sending more.

    stretch           duration of its responses, over the duration of such prompts and responses without other load
    delivered         in flight / stretch: undisturbed streams whose work was done in that time
    marginal stretch  d ln stretch / d ln in flight: at 0, one more request slows no other; at 1, it takes their time

The limit rises while the marginal stretch is low and falls while it is near 1. That climbs ln delivered minus a price
for ln in flight, like PCC Vivace (Dong et al., NSDI 2018) climbs its utility. The stretch itself, which TCP Vegas and
Netflix's `Gradient2Limit` hold constant, does not measure an engine that batches: each of sixty streams is three times
slower than a single one, but together they do twenty times the work. Until several limits have been tried, Vegas's
estimate 1 - 1 / stretch is used.

Initially, and when an upstream is idle again, the limit rises with every first token (slow start; Jacobson 1988), so
that no request waits for an idle upstream. A refusal lowers the limit below the refused count. Times are compared among
prompts of similar length, so that long prompts do not count as overload.

The limit is a pure function of the responses, without a clock. `tests/router/test_concurrency_limit.py` tests its
properties, and `benchmarks/concurrency.py` measures its value.
"""

from __future__ import annotations

import math
from collections import Counter
from enum import Enum

from router.config import ConcurrencyConfig

MIN_ANSWERS = 48
"""Least number of responses in a window, which also has as many as were in flight: about one use of every slot."""
KEPT = 0.7
"""Weight of the earlier windows when a new one ends, so that about the last three decide."""
UNTRIED = 0.0005
"""Variance of ln in flight (2 % up and down) below which the windows reveal little of the slope."""
FULL = 0.85
"""Marginal stretch from which the limit falls. A lower value costs the throughput of engines that batch; 1 is never
measured."""
PRIOR_FULL = 0.5
"""Estimate from which the limit falls: twice as slow as undisturbed. A small fall tests the estimate."""
FIRST_STEP, STEP_GROWS, LARGEST_STEP = 0.04, 1.5, 0.07
"""Step after a change of direction, growth of further steps, and largest step; steps are shares of the limit."""
USED = 0.8
"""Share of the limit that must be in flight before it rises, because unused slots have not been tried."""
EARLY, EARLY_S, LATE_PART, LATE_STEP = 3.0, 0.1, 0.5, 1 / 16
"""A first token within EARLY times the usual time, or at most EARLY_S later than usual, shows that nothing queues:
upstreams' times vary, and networks and busy gateways add a little. If half of about the last sixteen are later, the
fast rise ends."""
USUAL_STEP = 0.01
"""Weight of a new time in the usual one, so small that the fast rise ends before a growing queue becomes usual."""
UNDISTURBED = 1.1
"""Stretch up to which a lower limit gains nothing."""
HARDLY = 0.2
"""Marginal stretch up to which a lower limit gains nothing, for upstreams whose times vary too much ever to be
undisturbed."""
AFTER_FULL = 0.5
"""Share of the limit at which the upstream was full, up to which the limit may rise fast again."""
CLEAR, DOUBLED = 1.3, 2.0
"""An upstream that is undisturbed at CLEAR times the limit of its last fall has more room than before: the limit may
rise fast to DOUBLED times its value."""
HOLD_WINDOWS, LONGEST_HOLD = 8, 64
"""Windows without a rise after a refusal, doubled each time that about the same limit is refused again."""
FLOOR_FALLS, FLOOR_RISES = 0.5, 0.002
"""Share of the way that the undisturbed time falls towards a lower one, and its rise per window, in logarithms. It
rises so that an upstream that becomes slower permanently does not count as full forever."""
TELLING_TOKENS = 32
"""The tokens of shorter responses may arrive in one or two reads, however slow the engine is."""
SHORTEST_S = 1e-4


class Move(Enum):
    """The reason for a limit's last move. The value is for machines, the sentence for people."""

    sentence: str

    def __new__(cls, label: str, sentence: str) -> Move:
        move = object.__new__(cls)
        move._value_ = label
        move.sentence = sentence
        return move

    INITIAL = "initial", "no request has shown its limit yet"
    EARLY = "early", "first tokens came no later than usual"
    GAINED = "gained", "higher concurrency raised throughput"
    FULL = "full", "higher concurrency hardly raised throughput"
    REFUSED = "refused", "the upstream refused a request because it was full"
    SET = "set", "the pool's max_concurrency was set"


class _Undisturbed:
    """The duration of one kind of work without other load: the lowest one seen, which is forgotten slowly."""

    __slots__ = ("_log",)

    def __init__(self, seconds: float) -> None:
        self._log = math.log(max(seconds, SHORTEST_S))

    @property
    def seconds(self) -> float:
        return math.exp(self._log)

    def saw(self, seconds: float) -> None:
        """Learn one duration of that kind."""
        below = math.log(max(seconds, SHORTEST_S)) - self._log
        if below < 0:
            self._log += FLOOR_FALLS * below

    def forget(self) -> None:
        """Raise the time a little at the end of a window."""
        self._log += FLOOR_RISES


class _Usual:
    """The usual time to the first token of prompts of one length: a moving mean of logarithms."""

    __slots__ = ("_count", "_log")

    def __init__(self) -> None:
        self._log = self._count = 0.0

    def times(self, seconds: float) -> float:
        """The ratio of this time to the usual one, which then learns it."""
        log = math.log(max(seconds, SHORTEST_S))
        over = log - self._log if self._count else 0.0
        self._count += 1
        self._log += (log - self._log) * max(USUAL_STEP, 1 / self._count)
        return math.exp(over)


class _Slope:
    """The slope of ln stretch over ln in flight, by least squares with forgetting."""

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def learn(self, x: float, y: float) -> None:
        """Learn another window."""
        self._weight = KEPT * self._weight + 1.0
        self._x, self._y = KEPT * self._x + x, KEPT * self._y + y
        self._xx, self._xy = KEPT * self._xx + x * x, KEPT * self._xy + x * y

    @property
    def variance(self) -> float:
        """Variance of x, which shows the range that was tried."""
        return max(self._xx / self._weight - (self._x / self._weight) ** 2, 0.0)

    def value(self, prior: float) -> float:
        """The slope. The prior estimate has the weight of a variance of `UNTRIED`."""
        covariance = self._xy / self._weight - self._x * self._y / self._weight**2
        return (covariance + UNTRIED * prior) / (self.variance + UNTRIED)


class ConcurrencyLimit:
    """The limit of one replica. ceiling: the pool's `max_concurrency`; 0 for none."""

    def __init__(self, config: ConcurrencyConfig, ceiling: int = 0) -> None:
        self._least, self._most = float(config.min_limit), float(config.max_limit)
        self._limit = self._initial = float(config.initial)
        self.move = Move.INITIAL
        self.moves: Counter[Move] = Counter()
        """Number of moves by reason."""
        self.stretch = 1.0
        """Stretch of the last window."""
        self.marginal_stretch = 0.0
        """Marginal stretch over the last windows."""
        self._fast, self._fast_to, self._late = True, self._most, 0.0
        self._step, self._rising = FIRST_STEP, True
        self._fell_to = 0.0
        self._held, self._hold, self._refused_at = 0, HOLD_WINDOWS, 0.0
        self._prompts: dict[int, _Undisturbed] = {}
        self._usual: dict[int, _Usual] = {}
        """Usual and undisturbed times by length; see `_length_of`."""
        self._token: _Undisturbed | None = None
        self._slope = _Slope()
        self._begin_window()
        if ceiling:
            self.bound(config, ceiling)

    def bound(self, config: ConcurrencyConfig, ceiling: int) -> None:
        """Set the bounds. ceiling: the pool's `max_concurrency`, which is also the initial limit; 0 for none."""
        self._most = float(ceiling or config.max_limit)
        self._least = min(float(config.min_limit), self._most)
        self._initial = float(ceiling or config.initial)
        self._to(float(ceiling) or self._limit, Move.SET)

    @property
    def places(self) -> int:
        """Most requests that the upstream may have at a time."""
        return int(self._limit)

    def first_token(self, ttft_s: float, prompt_tokens: int, in_flight: int) -> None:
        """Learn from a first token. prompt_tokens: tokens to compute. in_flight: requests there, including this one."""
        length = _length_of(prompt_tokens)
        self._prompts.setdefault(length, _Undisturbed(ttft_s)).saw(ttft_s)
        times = self._usual.setdefault(length, _Usual()).times(ttft_s)
        if not self._fast:
            return
        early = times <= EARLY or ttft_s - ttft_s / times <= EARLY_S
        self._late += LATE_STEP * ((not early) - self._late)
        if self._late > LATE_PART:
            self._fast = False
        elif early and in_flight >= USED * self._limit and self._limit < self._fast_to and not self._held:
            self._to(self._limit + 1.0, Move.EARLY)

    def answered(self, ttft_s: float, decode_s: float, prompt_tokens: int, tokens: int, in_flight: float) -> None:
        """Learn from a response that ended normally. decode_s: from first to last token. in_flight: mean over its
        duration."""
        further = max(tokens - 1, 0)
        if tokens >= TELLING_TOKENS and decode_s > 0:
            self._token = self._token or _Undisturbed(decode_s / further)
            self._token.saw(decode_s / further)
        undisturbed = self._prompts.get(_length_of(prompt_tokens))
        self._undisturbed_s += ttft_s if undisturbed is None else undisturbed.seconds
        self._undisturbed_s += decode_s if self._token is None else further * self._token.seconds
        self._took_s += ttft_s + decode_s
        self._answers += 1
        self._in_flight += in_flight
        if self._answers >= max(MIN_ANSWERS, self._in_flight / self._answers):
            self._judge()

    def refused(self, in_flight: int) -> None:
        """Lower the limit, because the upstream refused a request as full. in_flight: requests there, with this one."""
        if not self._held:
            again = self._refused_at / CLEAR <= in_flight <= self._refused_at * CLEAR
            self._hold = min(2 * self._hold, LONGEST_HOLD) if again else HOLD_WINDOWS
        self._fast, self._held, self._refused_at = False, self._hold, float(in_flight)
        self._to(min(in_flight - 1.0, self._limit), Move.REFUSED)
        self._step, self._rising = 1.0 / (STEP_GROWS * self._limit), True

    def _judge(self) -> None:
        """Choose the direction at the end of a window."""
        in_flight = max(self._in_flight / self._answers, 1.0)
        self.stretch = max(self._took_s / max(self._undisturbed_s, SHORTEST_S), 1.0)
        self._begin_window()
        self._slope.learn(math.log(in_flight), math.log(self.stretch))
        prior = 1.0 - 1.0 / self.stretch
        self.marginal_stretch = self._slope.value(prior)
        self._held = max(0, self._held - 1)
        used = in_flight >= USED * self._limit
        if self._full(prior, used):
            self._fall(in_flight, used=used)
        elif used and not self._held:
            self._rise()

    def _full(self, prior: float, used: bool) -> bool:
        """Whether a lower limit would lose nothing. If the limit is not used, or no other was tried, this needs long
        waits."""
        if prior >= PRIOR_FULL and (self._slope.variance < UNTRIED or self.marginal_stretch >= FULL):
            return True
        return used and self.stretch > UNDISTURBED and self.marginal_stretch >= FULL

    def _fall(self, in_flight: float, *, used: bool) -> None:
        """Lower the limit. Unused slots are removed at once, but only down to the initial limit, because idle clients
        may return together. Measured throughput is never given up, because the upstream can sustain it."""
        if self.move is not Move.FULL:
            self._fast_to = AFTER_FULL * self._limit
        self._fast = False
        begin = self._limit if used else min(max(in_flight, self._initial), self._limit)
        step = self._next_step(rising=False) if used or in_flight >= self._initial else 0.0
        self._to(max(begin - step, min(in_flight / self.stretch, begin)), Move.FULL)
        self._fell_to = self._limit

    def _rise(self) -> None:
        if self.stretch <= UNDISTURBED or (self._slope.variance >= UNTRIED and self.marginal_stretch <= HARDLY):
            self._fast, self._late = True, 0.0
            if self._limit >= CLEAR * self._fell_to:
                self._fast_to = DOUBLED * self._limit
        self._to(self._limit + self._next_step(rising=True), Move.GAINED)

    def _next_step(self, *, rising: bool) -> float:
        self._step = min(self._step * STEP_GROWS, LARGEST_STEP) if rising is self._rising else FIRST_STEP
        self._rising = rising
        return max(self._step * self._limit, 1.0)

    def _to(self, limit: float, move: Move) -> None:
        limit = min(max(limit, self._least), self._most)
        if limit != self._limit:
            self._limit, self.move = limit, move
            self.moves[move] += 1

    def _begin_window(self) -> None:
        for undisturbed in self._prompts.values():
            undisturbed.forget()
        if self._token is not None:
            self._token.forget()
        self._answers = 0
        self._took_s = self._undisturbed_s = self._in_flight = 0.0


def _length_of(tokens: int) -> int:
    """The class of prompts of similar length, in half octaves."""
    return int(2 * math.log2(max(tokens, 1)))
