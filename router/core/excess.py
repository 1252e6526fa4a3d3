"""Decides whether a refusal is due to the refused tenant's own excess: it demands too much, and the others' demand
would have fitted.

A tenant's demand is the sum of its running and waiting requests, in tokens of prompt and longest response, without the
refused request. A tenant is in excess if both hold:

- relative to its share, it demands more than `FAR_OVER` times as much as all other tenants together;
- the room of the running requests would hold the demand of every tenant that is not in excess, so that without the
  excess no request would have waited.

If all tenants demand the same, none is in excess, however full the pool is: the pool is too small.
`FairQueue.over_share` answers another question: whether a tenant holds too much of a pool to get more of it now.
"""

from __future__ import annotations

from router.core.fair_queue import FairQueue, Tenant

FAR_OVER = 1.5
"""Factor on the others' demand for their shares, so that a tenant slightly above the others is not in excess."""


def in_excess(queue: FairQueue, name: str) -> bool:
    """Whether a tenant is in excess whose request the pool refuses for lack of room. The request must not be queued.

    The tenant is compared with active tenants only (`fair_queue.ACTIVE_S`): a tenant alone may use the whole pool.
    """
    tenant, shares = queue.tenant(name), queue.active_shares
    others = len(queue.active) - (name in queue.active)
    if not others or not queue.held_tokens:
        return False
    if name not in queue.active:  # the tenant's last request is older than `ACTIVE_S`
        shares += tenant.share
    demand = queue.held_tokens + queue.waiting_tokens
    if not _far_over(tenant, demand, shares):
        return False
    within = demand - tenant.demand_tokens
    if within > queue.held_tokens:  # other tenants may also be in excess
        rivals = (other for other in queue.active.values() if other is not tenant)
        within -= sum(other.demand_tokens for other in rivals if _far_over(other, demand, shares))
    return within <= queue.held_tokens


def _far_over(tenant: Tenant, demand: int, shares: float) -> bool:
    """Whether a tenant's demand is far above the others'. demand, shares: sums over all tenants, including this one."""
    others, others_shares = demand - tenant.demand_tokens, shares - tenant.share
    return tenant.demand_tokens * others_shares > FAR_OVER * tenant.share * others
