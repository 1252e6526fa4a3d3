"""A key that a command lends itself: for a model that generates text."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from contracts.desired_state import Model
from contracts.errors import InvalidField
from contracts.generation import Tier
from contracts.pooling import Task
from control.tenants.projects import Project
from slipstream.lent_key import _model

MODELS = (
    Model("vectors", Tier.CHAT, "vectors", 512, task=Task.EMBEDDING),
    Model("large", Tier.CHAT, "chat", 8192, aliases=("l",)),
)
PROJECT = Project(
    id=UUID(int=1),
    organization_id=UUID(int=2),
    name="web",
    models=None,
    tiers=None,
    created_at=datetime(2026, 11, 29, tzinfo=UTC),
    disabled_at=None,
    allow_reviews=False,
)


@pytest.mark.parametrize("asked", [None, "large", "l"])
def test_a_model_of_another_task_is_not_chosen(asked: str | None) -> None:
    """Fault: a coding agent was started with an embedding model, because it came first."""
    assert _model(MODELS, PROJECT, asked, {Tier.CHAT}).name == "large"


def test_a_model_of_another_task_is_refused_by_name() -> None:
    with pytest.raises(InvalidField, match="may use no chat model 'vectors'; it may use: large"):
        _model(MODELS, PROJECT, "vectors", {Tier.CHAT})
