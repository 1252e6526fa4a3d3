"""Decides whether a refusal is due to the refused tenant's own excess: it demands too much, and the others' demand
would have fitted.

A tenant's demand is its running and waiting requests, in tokens of prompt and longest response, without the refused
ask. It is in excess when both hold:

- for its share it demands more than `FAR_OVER` times what all others together demand for theirs;
- the running requests' room would hold the demand of every tenant that is not in excess, so that without the excess no
  request would have waited.

Where all tenants demand alike, none is in excess, however full the pool is: then the pool is too small.
`FairQueue.over_share` answers another question: which tenant holds too much of a pool to be given more of it now.
"""

from __future__ import annotations

from router.core.fair_queue import FairQueue, Tenant

FAR_OVER = 1.5
"""Factor on the others' demand for their shares: a tenant slightly above the others is not in excess."""


def in_excess(queue: FairQueue, name: str) -> bool:
    """A tenant whose ask the pool refuses for lack of room is in excess. The ask must not be in the queue.

    Compared with active tenants only, see `fair_queue.ACTIVE_S`: a tenant alone may use the whole pool.
    """
    tenant, shares = queue.tenant(name), queue.active_shares
    others = len(queue.active) - (name in queue.active)
    if not others or not queue.held_tokens:
        return False
    if name not in queue.active:  # the tenant has waited for long
        shares += tenant.share
    demand = queue.held_tokens + queue.waiting_tokens
    if not _far_over(tenant, demand, shares):
        return False
    within = demand - tenant.demand_tokens
    if within > queue.held_tokens:  # others may be in excess as well
        within -= sum(
            one.demand_tokens for one in queue.active.values() if one is not tenant and _far_over(one, demand, shares)
        )
    return within <= queue.held_tokens


def _far_over(tenant: Tenant, demand: int, shares: float) -> bool:
    """demand, shares: sums over all tenants, this one included."""
    others, others_shares = demand - tenant.demand_tokens, shares - tenant.share
    return tenant.demand_tokens * others_shares > FAR_OVER * tenant.share * others
