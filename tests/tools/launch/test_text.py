"""What is printed is what starts: shells read the same words from it, and keys come from where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.tools.launch.launched import HEAD, launch_of, pool_of, rendered
from tools.launch.spec import Argument, LaunchSpec
from tools.launch.text import script_of, text_of

SHELLS = [shell for shell in ("bash", "dash") if shutil.which(shell)]
KEY = 'it\'s-"quite"-$afe\\'


def run(shell: str, script: str, folder: Path) -> tuple[int, list[str], str]:
    """Exit code, the words an engine was started with and the key in its environment, by a program in its place."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("python3", "vllm", "trtllm-serve"):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done > {folder}/words\n'
            f'printf "%s" "${{VLLM_API_KEY-}}" > {folder}/key\n'
        )
        program.chmod(0o755)
    (folder / "words").unlink(missing_ok=True)
    done = subprocess.run(
        [shell, "-c", script], env={"PATH": f"{programs}:{os.environ['PATH']}"}, check=False, capture_output=True
    )
    words = (folder / "words").read_text().split("\0")[:-1] if (folder / "words").exists() else []
    return done.returncode, words, (folder / "key").read_text() if words else ""


def keyed(folder: Path, driver: str) -> LaunchSpec:
    key = folder / "pool.key"
    key.write_text(f"  {KEY}\n")
    pool = pool_of(driver, api_key_file=str(key))
    return rendered(pool, launch_of(folder=f"{folder}/engines", speculation=HEAD), speculation=True)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("driver", ["sglang", "vllm"])
def test_the_script_starts_the_engine_with_its_files_and_its_key(shell: str, driver: str, tmp_path: Path) -> None:
    spec = keyed(tmp_path, driver)
    code, words, variable = run(shell, script_of(spec), tmp_path)
    assert code == 0
    assert tuple(words) == spec.command[1:]
    for file in spec.files:
        assert Path(file.path).read_text() == file.content
    if driver == "vllm":
        assert variable.strip() == KEY
    else:
        config = Path(words[words.index("--config") + 1])
        assert yaml.safe_load(config.read_text()) == {"api-key": KEY}
        assert config.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("driver", ["sglang", "vllm"])
def test_without_its_key_no_engine_is_started(driver: str, tmp_path: Path) -> None:
    spec = keyed(tmp_path, driver)
    (tmp_path / "pool.key").write_text("")
    assert run("sh", script_of(spec), tmp_path)[1] == []
    (tmp_path / "pool.key").unlink()
    assert run("sh", script_of(spec), tmp_path)[1] == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("driver", ["sglang", "vllm", "tensorrt_llm"])
def test_the_text_for_people_is_the_same_command(shell: str, driver: str, tmp_path: Path) -> None:
    spec = keyed(tmp_path, driver)
    text = text_of(spec)
    for file in spec.files:
        text = text.replace(file.content, "\n")
    assert tuple(run(shell, text, tmp_path)[1]) == spec.command[len(spec.program[:1]) :]


@pytest.mark.parametrize("written", [script_of, text_of])
def test_the_folder_of_a_key_is_made_where_no_file_goes_into_it(
    written: Callable[[LaunchSpec], str], tmp_path: Path
) -> None:
    (tmp_path / "pool.key").write_text(f"{KEY}\n")
    spec = rendered(
        pool_of("sglang", api_key_file=str(tmp_path / "pool.key")), launch_of(folder=f"{tmp_path}/not made/yet")
    )
    assert not spec.files
    assert run("sh", written(spec), tmp_path)[0] == 0
    assert yaml.safe_load((tmp_path / "not made" / "yet" / "gpu-0.key.yaml").read_text()) == {"api-key": KEY}
    keyless = rendered(pool_of("sglang", api_key_file="", api_key_required=False), launch_of())
    assert "mkdir" not in written(keyless), "nothing goes into one"


@pytest.mark.parametrize("shell", SHELLS)
def test_no_reason_is_read_as_a_command(shell: str, tmp_path: Path) -> None:
    why = f'one\'s own `touch x` $(touch x) "quoted" \\ behind\ntouch {tmp_path}/came-here'
    spec = msgspec.structs.replace(
        keyed(tmp_path, "sglang"),
        before=(),
        key_file="",
        files=(),
        pool=why,
        arguments=(Argument("--a", ("1",), why), Argument("--b", ("2",), why)),
    )
    assert run(shell, text_of(spec), tmp_path)[1][-4:] == ["--a", "1", "--b", "2"]
    assert run(shell, script_of(spec), tmp_path)[1][-4:] == ["--a", "1", "--b", "2"]
    assert not (tmp_path / "came-here").exists()
