"""The slices that runs and releases may name."""

from __future__ import annotations

from gateway.admin.call import AdminCall
from gateway.admin.schemas import Page
from gateway.evals.startable import EvalSlice


async def list_eval_slices(call: AdminCall) -> Page[EvalSlice]:
    """List the deployment's slices: those that are made from seeds, and those of its folder of questions."""
    return Page(data=await call.slices.all(), has_more=False, next_cursor=None)
