"""Decides how soon a pool may start another prompt without making its streams late.

While an engine computes a prompt, its streams almost stop. Each granted prompt adds its computing time to a debt of the
whole pool. The debt is not per replica: closing replicas one by one would send every prompt to the open replica instead
of the one that has it cached. The debt is paid off at the rate at which streams can wait and still get their tokens in
the promised time; that rate is learnt from the streams that end.
"""

from __future__ import annotations

import msgspec

from router.core.latency_model import LatencyModel


class PacingRules(msgspec.Struct, frozen=True):
    """Constants of the rule, tuned with `benchmarks.placement` on held-out traces; none is a setting."""

    slow_allowed: float = 0.15
    """Share of streams, 0 to 1, that may miss their time per token before fewer prompts are admitted."""
    slow_step: float = 0.02
    """Weight of one stream in the moving share of late streams."""
    spare_part_step: float = 0.003
    """Change per ended stream. In a burst of short responses, hundreds end in a second, which must not close the pool
    for a minute."""
    spare_part: float = 0.75
    """Largest share of the streams' spare time that prompts get. Streams with short responses can spare less than the
    average stream."""
    least_spare_part: float = 0.3
    """Lower bound of the learnt factor on `spare_part`."""
    unkeepable: float = 0.9
    """Share of the promised time per token from which, for a single stream, an engine misses the promise anyway."""
    hopeless_share: float = 0.8
    """Share of the time that such engines give to prompts."""
    least_rate: float = 0.1
    """Share of the time that prompts get even if streams can spare none."""
    debt_s: float = 0.5
    """Allowed debt per replica in seconds, which streams make up for later."""
    over_share_debt_s: float = 0.15
    """Allowed debt for a tenant that has more than its share; the rest is for the others."""
    contested_debt_s: float = 1.3
    """Allowed debt for the other tenants while such a tenant is held back in their favour."""
    contested_s: float = 2.0
    """Seconds for which `contested_debt_s` applies after such a tenant was last held back."""


RULES = PacingRules()


class Pacing:
    """The debt of one pool. Durations are in seconds; `usable` and `leases` are the pool's at the time of the call."""

    def __init__(self, latency_model: LatencyModel, rules: PacingRules = RULES) -> None:
        self._latency_model = latency_model
        self._rules = rules
        self.debt_s = 0.0
        """Granted prefill for which running streams have not yet made up."""
        self.over_debt_s = 0.0
        """The debt of tenants with more than their share, which holds back no other tenant."""
        self._debt_at = 0.0
        self._contested_at = float("-inf")
        """Time at which a tenant with more than its share was last held back."""
        self._spare_part = 1.0
        """Learnt factor on `PacingRules.spare_part`."""
        self._slow = 0.0
        """Moving share of the streams that missed their time per token."""

    def opens_in_s(
        self, tpot_slo_s: float, usable: int, leases: int, now: float, *, over_share: bool, yields: bool = False
    ) -> float:
        """Seconds until running streams can bear one more prompt and still get a token every `tpot_slo_s`; 0 for now.

        over_share: whether the prompt's tenant has more than its share. yields: whether its class yields to all others.
        """
        if not usable or not self._latency_model.trusted:
            return 0.0
        rules = self._rules
        rate = self.pay_off(tpot_slo_s, usable, leases, now)
        if over_share or yields:
            if over_share:  # a class that yields takes nothing from the others, so they need no protection from it
                self._contested_at = now
            debt_s, allowed_s = self.debt_s, rules.over_share_debt_s * usable
        else:
            debt_s = self.debt_s - self.over_debt_s
            contested = now - self._contested_at < rules.contested_s
            allowed_s = (rules.contested_debt_s if contested else rules.debt_s) * usable
        return max(0.0, (debt_s - allowed_s) / rate)

    def pay_off(self, tpot_slo_s: float, usable: int, leases: int, now: float) -> float:
        """Update the debt to `now`. Returns the rate at which it is paid off, in seconds of prefill per second."""
        rate = self._rate(tpot_slo_s, usable, leases)
        left_s = max(0.0, self.debt_s - rate * (now - self._debt_at))
        if self.over_debt_s:
            self.over_debt_s *= left_s / self.debt_s
        self.debt_s, self._debt_at = left_s, now
        return rate

    def owe(self, work_s: float, tpot_slo_s: float, usable: int, leases: int, now: float, *, over_share: bool) -> None:
        """Add a granted prompt's prefill. over_share: whether its tenant, with this prompt, has more than its share."""
        if tpot_slo_s:
            self.pay_off(tpot_slo_s, usable, leases, now)
        self.debt_s += work_s
        if over_share:
            self.over_debt_s += work_s

    def _rate(self, tpot_slo_s: float, usable: int, leases: int) -> float:
        rules, token_s = self._rules, self._latency_model.token_s
        if token_s(1) >= rules.unkeepable * tpot_slo_s:
            return rules.hopeless_share * usable
        spare = 1.0 - token_s(leases // max(usable, 1)) / tpot_slo_s
        return max(rules.spare_part * self._spare_part * spare, rules.least_rate) * usable

    def backlog_s(self, credit_s: float, usable: int) -> float:
        """The debt beyond a credit for each replica, without the part that holds back no other tenant."""
        return max(0.0, self.debt_s - self.over_debt_s - credit_s * usable)

    def saw_stream(self, kept: bool) -> None:
        """Learn from a stream that ended. kept: whether it got its tokens in the promised time."""
        rules = self._rules
        self._slow += rules.slow_step * ((not kept) - self._slow)
        factor = 1 - rules.spare_part_step * (self._slow - rules.slow_allowed)
        self._spare_part = min(max(self._spare_part * factor, rules.least_spare_part), 1.0)

    def forgive(self) -> None:
        """Cancel the debt, because no stream is left that could make up for it."""
        self.debt_s = self.over_debt_s = 0.0
