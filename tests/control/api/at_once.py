"""`slipstream` whose gateway does not wait for a router before it listens, which otherwise takes seconds:
`python -m tests.control.api.at_once gateway …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gateway.main
from slipstream.__main__ import main
from tests.waiting import eventually

if TYPE_CHECKING:
    from gateway.services import Services


async def ready_but_for_the_router(services: Services) -> None:
    await eventually(lambda: all(holds for name, holds in services.readiness().items() if name != "router"))


if __name__ == "__main__":
    gateway.main._ready = ready_but_for_the_router
    main()
