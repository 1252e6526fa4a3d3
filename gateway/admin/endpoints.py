"""Every endpoint of the admin API. A new resource file is one line here."""

from __future__ import annotations

from gateway.admin import me, organizations, projects
from gateway.admin.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *me.ENDPOINTS,
    *organizations.ENDPOINTS,
    *projects.ENDPOINTS,
)
