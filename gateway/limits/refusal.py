"""Creates the errors of limits: which rule, which counter, how much is left and when more is free."""

from __future__ import annotations

from datetime import UTC, datetime

from contracts.errors import PROMPT_CAP, InsufficientQuota, LimitDetail, LimitError, RateLimited, RequestTooExpensive
from gateway.limits.cost import Cost
from gateway.limits.levels import Rule
from gateway.limits.plan import (
    CONCURRENCY,
    COUNTERS,
    MINUTE_MS,
    MONEY,
    NO_LIMIT,
    Decision,
    Plan,
    PlannedRule,
    amounts_of,
    used_of,
)
from gateway.limits.rate_state import RateState
from gateway.wire.rate_state import go_duration

_UNITS = (
    "requests per minute",
    "input tokens per minute",
    "output tokens per minute",
    "tokens per minute",
    "requests at a time",
    "tokens per day",
    "a month (UTC)",
)
AN_HOUR_MS = 3_600_000


class CounterReached(LimitError):
    """A counter refused the request. state: all counters, for headers and the request's record. concurrency_short:
    number of running requests that must end for this one to pass; 0 if their end alone would not suffice."""

    limit: LimitDetail

    def __init__(
        self, message: str, detail: LimitDetail, wait_ms: int, state: RateState, concurrency_short: int = 0
    ) -> None:
        super().__init__(message, retry_after_s=wait_ms / 1_000)
        self.limit = detail
        self.state = state
        self.wait_ms = wait_ms
        self.concurrency_short = concurrency_short


class LimitReached(CounterReached, RateLimited):
    """A counter is used up for now."""


class BudgetReached(CounterReached, InsufficientQuota):
    """The month's money does not allow this request."""


def refused(plan: Plan, decided: Decision, cost: Cost, currency: str) -> CounterReached:
    """The error for a decision that refused. currency: the currency of budgets."""
    rule, position = plan.rules[decided.rule - 1], decided.counter - 1
    amount = amounts_of(1, cost)[position]
    owner, limit, wait_ms = _whose(rule), rule.limits[position], decided.wait_ms
    used = used_of(position, limit, decided.left[len(COUNTERS) * (decided.rule - 1) + position])
    left = max(0, limit - used)
    detail = _detail(rule, COUNTERS[position].value, limit, left, amount, wait_ms, decided.now_ms)
    state = RateState(plan, decided.left, decided.now_ms)
    if position == CONCURRENCY:
        ended = "one has" if used <= limit else f"{used - limit + 1} have"
        message = f"{used} requests {owner} are running, its limit is {limit}. Try again when {ended} ended."
        return LimitReached(message, detail, wait_ms, state, _concurrency_short(plan, decided, cost))
    again = f"Try again {_when(wait_ms, decided.now_ms)}."
    if position == MONEY:
        whole = f"{_amount(position, limit, currency)} {_UNITS[position]}"
        stands = (
            f"{whole}, of which {_amount(position, left, currency)} is neither spent nor reserved for running requests"
        )
        if used > limit:
            stands = f"{whole}, and {_amount(position, used, currency)} is spent or reserved for running requests"
        message = (
            f"Budget {owner} reached: {stands}; this one may cost up to "
            f"{_amount(position, amount, currency)} (prompt and largest possible output). {again}"
        )
        return BudgetReached(message, detail, wait_ms, state)
    needs = "needs 1" if position == 0 else f"may use up to {amount}"
    stands = f"of which {left} are left" if used <= limit else f"and {used} are used or reserved by running requests"
    message = f"Limit {owner} reached: {limit} {_UNITS[position]}, {stands}; this request {needs}. {again}"
    return LimitReached(message, detail, wait_ms, state)


def too_expensive(
    rule: PlannedRule, position: int, cost: Cost, currency: str
) -> RequestTooExpensive | InsufficientQuota:
    """The error for a request that is larger than the whole limit; InsufficientQuota if the limit is a budget of 0,
    which no smaller request would pass. currency: the currency of budgets."""
    amount, limit = amounts_of(1, cost)[position], rule.limits[position]
    detail = _detail(rule, COUNTERS[position].value, limit, None, amount, None, None)
    if position == MONEY and limit == 0:
        no_budget = InsufficientQuota(
            f"The budget {_whose(rule)} is {_amount(position, 0, currency)} {_UNITS[position]}, so no request with a "
            "price is served. Ask the administrator to raise it."
        )
        no_budget.limit = detail
        return no_budget
    needed, whole = _amount(position, amount, currency), _amount(position, limit, currency)
    verb, noun = ("cost", "budget") if position == MONEY else ("use", "limit")
    error = RequestTooExpensive(
        f"This request may {verb} up to {needed} (prompt and largest possible output), more than the {noun} of {whole} "
        f"{_UNITS[position]} {_whose(rule)}. Lower max_tokens or shorten the prompt."
    )
    error.limit = detail
    return error


def prompt_too_long(rule: Rule, limit: int, prompt_tokens: int, *, exact: bool) -> RequestTooExpensive:
    """The error for a prompt above a rule's bound."""
    about = "" if exact else "about "
    error = RequestTooExpensive(
        f"This prompt has {about}{prompt_tokens} tokens, more than the {limit} that a prompt {_whose(rule)} may have. "
        "Shorten it: fewer or shorter passages, older turns summarized; or ask the administrator to raise the limit."
    )
    error.limit = _detail(rule, PROMPT_CAP, limit, None, prompt_tokens, None, None)
    return error


def _concurrency_short(plan: Plan, decided: Decision, cost: Cost) -> int:
    """How many running requests must end; 0 if a counter other than those of running requests has too little left.
    Tokens and money of running requests do not count as free, because it is unknown how much comes back."""
    short, amounts = 0, amounts_of(1, cost)
    for number, rule in enumerate(plan.rules):
        for position, limit in enumerate(rule.limits):
            left = decided.left[len(COUNTERS) * number + position]
            if limit == NO_LIMIT:
                continue
            if position == CONCURRENCY:
                short = max(short, left + 1 - limit)  # here, `left` is the number of running requests
            elif amounts[position] * (MINUTE_MS if position < CONCURRENCY else 1) > max(0, left):
                return 0
    return short


def _detail(
    rule: PlannedRule | Rule,
    counter: str,
    limit: int,
    left: int | None,
    amount: int,
    wait_ms: int | None,
    now_ms: int | None,
) -> LimitDetail:
    return LimitDetail(
        level=rule.level.value,
        subject_id=rule.subject_id,
        tier=rule.tier.value if rule.tier else None,
        counter=counter,
        limit=limit,
        remaining=left,
        requested=amount,
        frees_in_ms=wait_ms,
        frees_at=rfc3339(now_ms + wait_ms) if now_ms is not None and wait_ms is not None else None,
    )


def rfc3339(ms: int) -> str:
    """Epoch milliseconds as a moment in UTC: whole seconds, rounded up."""
    return datetime.fromtimestamp(-(-ms // 1_000), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _whose(rule: PlannedRule | Rule) -> str:
    tier = f" in tier {rule.tier.value}" if rule.tier else ""
    return f"of this {rule.level.value}{tier}" if rule.level == "key" else f"of your {rule.level.value}{tier}"


def _when(wait_ms: int, now_ms: int) -> str:
    """The wait if it is less than an hour; else the moment."""
    return f"in {go_duration(wait_ms)}" if wait_ms < AN_HOUR_MS else f"after {rfc3339(now_ms + wait_ms)}"


def _amount(position: int, amount: int, currency: str) -> str:
    """A readable amount, with money in whole units of the currency."""
    if position != MONEY:
        return str(amount)
    return f"{amount / 1_000_000:.6f}".rstrip("0").rstrip(".") + f" {currency}"
