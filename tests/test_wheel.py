"""The wheel holds every file that the program reads from its own folders: `slipstream up` works where only it is."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from setuptools import Distribution

ROOT = Path(__file__).parents[1]
LEFT_OUT = (
    "control/console/dist.sha256", "control/console/dist/.vite",
    "infra/compose", "infra/grafana", "infra/nginx", "infra/prometheus", "infra/systemd", "infra/verify",
    "tools/training",
)  # fmt: skip
"""Files of a repository that an operator copies, and programs that run in it only."""


def test_the_wheel_has_models_migrations_console_and_every_file_of_the_packages() -> None:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            distribution = Distribution({"script_name": "setup.py"})
            distribution.parse_config_files()
            built = distribution.get_command_obj("build_py")
            built.ensure_finalized()
            held = {os.path.normpath(file) for _, _, file in built.find_all_modules()}
            held |= {os.path.join(folder, name) for _, folder, _, names in built.data_files for name in names}  # noqa: PTH118
    finally:
        os.chdir(before)
    held = {os.path.normpath(file) for file in held}
    tops = {package.split(".")[0] for package in distribution.packages}
    assert {"migrations", "models", "slipstream"} <= tops
    wanted = {
        str(file.relative_to(ROOT))
        for top in tops
        for file in (ROOT / top).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.name != "README.md"
    }
    assert sorted(name for name in wanted - held if not name.startswith(LEFT_OUT)) == []
    for name in ("models/slipstream-code/model.safetensors", "control/console/dist/index.html", "migrations/env.py"):
        assert name in held
