"""OpenAI's organization API: its operations with their URLs and permissions. It requires admin keys.

It only reads. The admin API changes the same objects.
"""

from __future__ import annotations

from litestar import Router
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler

from control.api.operation import Operation, get, report
from control.api.request import BoundedRequest, require_known_parameters, require_permission
from control.api.route_handlers import controller
from control.openai_organization import people, usage
from control.operations import provide_admin
from gateway.wire.config import RequestConfig
from storage.roles import Permission as Can

OPENAI_PREFIX = "/v1/organization"
CONTROLLERS = (
    controller("/usage/completions", report(usage.organization_completions_usage, Can.USAGE_READ)),
    controller("/usage/embeddings", report(usage.organization_embeddings_usage, Can.USAGE_READ)),
    controller("/costs", report(usage.organization_costs, Can.USAGE_READ)),
    controller(
        "/projects",
        get(people.list_organization_projects, Can.PROJECTS_READ),
        get(people.get_organization_project, Can.PROJECTS_READ, "/{project_id}"),
    ),
    controller(
        "/users",
        get(people.list_organization_users, Can.MEMBERS_READ),
        get(people.get_organization_user, Can.MEMBERS_READ, "/{member_id}"),
    ),
    controller(
        "/admin_api_keys",
        get(people.list_organization_admin_keys, Can.ADMIN_KEYS_READ),
        get(people.get_organization_admin_key, Can.ADMIN_KEYS_READ, "/{admin_key_id}"),
    ),
)
OPENAI_OPERATIONS: tuple[Operation, ...] = tuple(
    handler.opt["operation"]
    for each in CONTROLLERS
    for handler in vars(each).values()
    if isinstance(handler, HTTPRouteHandler) and "operation" in handler.opt
)


def openai_operations(limits: RequestConfig) -> Router:
    """All operations, below /v1/organization. limits: limits of bodies."""
    return Router(
        path=OPENAI_PREFIX,
        route_handlers=list(CONTROLLERS),
        guards=[require_permission, require_known_parameters],
        dependencies={"admin": Provide(provide_admin)},
        request_class=BoundedRequest,
        opt={"body_limits": limits},
    )


def plain_names(query: bytes) -> bytes:
    """A query with this API's names: OpenAI's SDKs write `group_by[]` for a list."""
    return query.replace(b"%5B%5D=", b"=").replace(b"[]=", b"=")
