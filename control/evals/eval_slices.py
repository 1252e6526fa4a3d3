"""The slices that runs and releases may name."""

from __future__ import annotations

from control.api.call import AdminCall
from control.api.schemas import Page
from control.slices.startable import EvalSlice


async def list_eval_slices(call: AdminCall) -> Page[EvalSlice]:
    """List the deployment's slices: generated ones, and those from its folder of questions."""
    return Page(data=await call.slices.all(), has_more=False, next_cursor=None)
