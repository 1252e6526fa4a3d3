"""The parts of a running gateway that the admin API's routes need."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.admin.api import AdminApi
from gateway.sessions.browsers import Browsers


class AdminServices(msgspec.Struct, frozen=True, kw_only=True):
    """References only; each part owns its own state. leaving: whether this gateway is about to end."""

    admin: AdminApi
    browsers: Browsers
    leaving: Callable[[], bool]
