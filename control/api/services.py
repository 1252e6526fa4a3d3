"""The parts of a running gateway that the admin API's routes need."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from control.api.api import AdminApi
from control.sessions.browsers import Browsers


class AdminServices(msgspec.Struct, frozen=True, kw_only=True):
    """References to parts that own their state. leaving: whether this gateway is shutting down."""

    admin: AdminApi
    browsers: Browsers
    leaving: Callable[[], bool]
