"""Whether a refusal is the refused tenant's own doing: it asks for too much, and the others would have fitted.

A tenant's demand is what it runs and what it has waiting, in tokens of prompt and longest answer, without the ask that
is refused. It is in excess when both hold:

- for its share it demands more than `FAR_OVER` times what all others together demand for theirs;
- what the pool runs now would hold the demand of everybody who is not in excess, so that without the excess nobody
  would have waited.

Where all demand alike nobody is in excess, however full the pool is: then it is too small. `FairQueue.over_share` is
another question: who holds too much of a pool to be given more of it now.
"""

from __future__ import annotations

from router.core.fair_queue import FairQueue, Tenant

FAR_OVER = 1.5
"""Times the demand of the others for their shares: a little more than everyone else is nobody's excess."""


def in_excess(queue: FairQueue, name: str) -> bool:
    """What is said of a tenant whose ask the pool refuses for lack of room. The ask must not be in the queue.

    Beside others that are active only, see `fair_queue.ACTIVE_S`: who is alone has all of the pool.
    """
    tenant, shares = queue.tenant(name), queue.active_shares
    others = len(queue.active) - (name in queue.active)
    if not others or not queue.held_tokens:
        return False
    if name not in queue.active:  # it has waited for long
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
    """demand, shares: of all, this tenant's included."""
    others, others_shares = demand - tenant.demand_tokens, shares - tenant.share
    return tenant.demand_tokens * others_shares > FAR_OVER * tenant.share * others
