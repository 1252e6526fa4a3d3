"""LiteLLM's tenants choose their names; equal ones never put one tenant's keys in another's project."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from slipstream.litellm_import.plan import NAME_CHARACTERS, Notes, PlannedProject
from slipstream.litellm_import.tenants import Tables, Tenants

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def key(name: str, **fields: Any) -> dict[str, Any]:
    return {"token": sha256(name.encode()).hexdigest(), "key_alias": name, **fields}


def projects_of_keys(**tables: Any) -> dict[str, PlannedProject]:
    """Each key's project, by the key's name."""
    models = {name: name for name in ("big", "small", *(f"{'m' * 150}{number}" for number in range(4)))}
    planned = Tenants(Tables(**tables), models, "litellm", NOW, Notes()).planned()
    return {
        key.name: project for organization in planned for project in organization.projects.values()
        for key in project.keys
    }  # fmt: skip


def test_users_of_one_name_have_projects_of_their_own() -> None:
    """Responses and files are a project's: they would have read each other's."""
    users = [
        {"user_id": name, "user_alias": "Ann", "models": [model]} for name, model in (("u1", "big"), ("u2", "small"))
    ]
    users.append({"user_id": "u3", "user_alias": "default", "models": ["big"]})
    keys = [key(f"of {user['user_id']}", user_id=user["user_id"]) for user in (*users, users[0])]
    keys[-1]["key_alias"] = "second of u1"
    found = projects_of_keys(users=users, keys=[*keys, key("of nobody")])
    assert {name: (project.name, project.models) for name, project in found.items()} == {
        "of u1": ("Ann", ["big"]),
        "second of u1": ("Ann", ["big"]),
        "of u2": ("Ann (u2)", ["small"]),
        "of u3": ("default (u3)", ["big"]),
        "of nobody": ("default", None),
    }


def test_a_team_named_default_shares_no_project_with_its_organizations_keys() -> None:
    found = projects_of_keys(
        organizations=[{"organization_id": "o", "organization_alias": "O"}],
        teams=[{"team_id": "t", "team_alias": "default", "organization_id": "o"}],
        keys=[key("of team", team_id="t"), key("of organization", organization_id="o")],
    )
    assert {name: project.name for name, project in found.items()} == {
        "of team": "default (t)",
        "of organization": "default",
    }


def test_a_narrow_key_never_gets_another_projects_models() -> None:
    """A project may have the name that the narrow key's would have; and long lists of models begin alike."""
    long = [f"{'m' * 150}{number}" for number in range(4)]
    found = projects_of_keys(
        organizations=[{"organization_id": "o", "organization_alias": "O"}],
        teams=[
            {"team_id": "a", "team_alias": "A", "organization_id": "o"},
            {"team_id": "b", "team_alias": "A: small", "organization_id": "o"},
        ],
        keys=[
            key("wide", team_id="b"),
            key("narrow", team_id="a", models=["small"]),
            key("narrow too", team_id="a", models=["small"]),
            key("two", team_id="a", models=long[:2]),
            key("three", team_id="a", models=long[:3]),
        ],
    )
    assert {name: project.models for name, project in found.items()} == {
        "wide": None,
        "narrow": ["small"],
        "narrow too": ["small"],
        "two": long[:2],
        "three": long[:3],
    }
    assert found["narrow"] is found["narrow too"]
    assert all(len(project.name) <= NAME_CHARACTERS for project in found.values())
