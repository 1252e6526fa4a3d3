from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.embedded.tiny import CONFIG, random_weights, write_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer model that several tests share."""
    return write_model(tmp_path_factory.mktemp("models") / "tiny", CONFIG, random_weights(CONFIG))
