"""The commands that make a corpus and a vocabulary, on a small library of their own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

from contracts.errors import ConfigError
from tools.training import manifest
from tools.training.__main__ import main
from tools.training.code_files import NOT_PERMISSIVE, PERMISSIVE, CodeFile, load
from tools.training.tokenizer_command import learn

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{licence}\n"


def write(root: Path, name: str, seed: int) -> None:
    source = random.Random(seed)
    names = [f"{word}_{seed}" for word in ("load", "store", "check", "merge", "split", "total")]
    lines = [f"def {source.choice(names)}_{at}(value):\n    return value.{source.choice(names)}\n" for at in range(20)]
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


def install(site: Path, name: str, licence: str, seed: int) -> None:
    write(site, f"{name}/core.py", seed)
    write(site, f"{name}/tests/test_core.py", seed + 1)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(name=name, licence=licence))
    (info / "RECORD").write_text(f"{name}/core.py,,\n{name}/tests/test_core.py,,\n")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A base library of 60 files, a later one with one file more, packages under two licences."""
    for seed in range(60):
        write(tmp_path / "python3.11", f"module_{seed}.py", seed)
        write(tmp_path / "python3.13", f"module_{seed}.py", seed)
    write(tmp_path / "python3.13", "brand_new.py", 99)
    write(tmp_path / "python3.11", "test/test_module.py", 98)
    (tmp_path / "python3.11" / "table.py").write_text("TABLE = [" + ", ".join(map(str, range(1000))) + "]\n")
    install(tmp_path / "site", "free", "License: MIT", 200)
    install(tmp_path / "site", "other", "License-Expression: BSD-3-Clause", 250)
    install(tmp_path / "site", "bound", "License: GPL-3.0", 300)
    return tmp_path


def corpus(library: Path, *packages: str) -> list[CodeFile]:
    arguments = ["corpus", "--stdlib", str(library / "python3.11"), "--newer", str(library / "python3.13")]
    arguments += ["--site-packages", str(library / "site"), "--out", str(library / "out")]
    for package in packages:
        arguments += ["--package", package]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return load(library / "out").files


def test_a_corpus_says_what_it_holds(library: Path) -> None:
    files = {file.name: file for file in corpus(library, "free")}
    assert files["free-1.0/free/core.py"].licence == "MIT"
    assert files["stdlib-3.13/brand_new.py"].part == "new"
    assert not any("test" in name or "table" in name for name in files)
    assert not any(name.startswith("stdlib-3.13/module") for name in files)
    base = [file for file in files.values() if file.name.startswith("stdlib-3.11")]
    assert len(base) == 60
    assert {file.part for file in base} == {"train", "held"}
    assert {file.licence for file in base} == {"PSF-2.0"}


def test_a_corpus_can_be_held_against_a_manifest(library: Path) -> None:
    files = corpus(library, "free")
    path = library / "data.tsv.gz"
    manifest.write(files, path)
    first = path.read_bytes()
    manifest.write(files, path)
    assert path.read_bytes() == first
    assert manifest.read(path) == files
    manifest.require_same(files, path)
    with pytest.raises(ConfigError, match=r"free/core\.py is missing"):
        manifest.require_same(corpus(library, "other"), path)
    write(library / "python3.11", "module_3.py", 777)
    with pytest.raises(ConfigError, match=r"module_3\.py differs"):
        manifest.require_same(corpus(library, "free"), path)


def test_the_shipped_manifest_lists_permissive_files_once_and_holds_some_out() -> None:
    files = manifest.read(Path("tools/training/data/slipstream-code.tsv.gz"))
    assert len({file.name for file in files}) == len(files) > 2000
    assert all(PERMISSIVE.search(file.licence) and not NOT_PERMISSIVE.search(file.licence) for file in files)
    hashes = {part: {file.sha256 for file in files if file.part == part} for part in ("train", "held", "new")}
    assert not hashes["train"] & (hashes["held"] | hashes["new"])
    assert len(hashes["held"]) >= 15
    assert len(hashes["new"]) >= 20


def test_a_package_without_a_permissive_licence_is_refused(library: Path) -> None:
    with pytest.raises(ConfigError, match=r"bound: licence .*GPL"):
        corpus(library, "bound")
    with pytest.raises(ConfigError, match="missing: not installed"):
        corpus(library, "missing")


def test_a_text_that_is_not_the_manifests_stops_the_training(library: Path) -> None:
    corpus(library, "free")
    texts = library / "out" / "texts.msgpack"
    texts.write_bytes(texts.read_bytes().replace(b"def load_1_", b"def leak_1_"))
    with pytest.raises(ConfigError, match="is not the text of the manifest"):
        load(library / "out")


def test_a_vocabulary_is_learnt_and_reads_any_text_back(library: Path) -> None:
    corpus(library, "free")
    out = library / "tokenizer.json"
    arguments = ["tokenizer", "--corpus", str(library / "out"), "--vocabulary", "300", "--out", str(out)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "300 tokens" in result.output
    learnt = Tokenizer.from_file(str(out))
    for text in ("def load(value):\n    return 12\n", "naïve ☃ \t\x00", "<|fim_middle|"):
        assert learnt.decode(learnt.encode(text).ids) == text
    assert learnt.token_to_id("<|fim_prefix|>") == 1
    assert len(learnt.encode("    return value\n").ids) < 8


def test_digits_stay_single_and_a_newline_keeps_its_indentation() -> None:
    learnt = learn(["x = 1111\n    y = 1111\n"] * 50, 300)
    pieces = learnt.encode("x = 1111\n    y").tokens
    assert pieces.count("1") + pieces.count("Ġ1") == 4
    assert "ĊĠĠĠĠ" in pieces
