"""Prompts of the layouts, drawn cursors, files that are read, and the verdict."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from engines.drivers import registry as drivers
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.fill.healing import healing_of
from gateway.wire.format import WireFormat
from gateway.wire.gap import Gap, Snippet
from gateway.wire.mistral.format import FimFormat
from gateway.wire.openai.format import CompletionFormat
from gateway.wire.prepared import Target
from slipstream.layout_report import Healed, report_of, text_of
from tests.deployment import ROOT
from tests.gateway.wire.openai.preparing import CALLER
from tests.psm_model import write_psm_model
from tools.layouts import sources
from tools.layouts.cursors import chunks_of, draw, gap_of
from tools.layouts.layout import (
    MAX_TOKENS,
    Layout,
    Prompts,
    layouts_of,
    present_layout,
    require_layouts,
    settings_for,
)
from tools.layouts.measure import body_of
from tools.layouts.sources import MAX_DEPTH, MAX_FILE_BYTES, read_sources
from tools.layouts.verdict import Answers, Reason, judge

MODEL = Model("coder", Tier.AUTOCOMPLETE, "p", 4_096, tokenizer=str(ROOT / "models" / "slipstream-code"))
FILES = {
    f"{name}.py": f"# {name}\n\n\n# a comment\n{name} = compute_{name}(1)\nother_{name} = {name}\n\n{name}.run()\n"
    for name in ("alpha", "beta", "gamma")
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(str(MODEL.tokenizer))


async def test_each_layout_puts_its_parts_in_its_order(tokenizer: Tokenizer) -> None:
    template = tokenizer.fill
    assert template is not None
    gap = Gap("def f():\n    retu", "\n\nprint(f())\n", (Snippet("other.py", "VALUE = 1"),), "f.py", "python")
    typed = Gap("def f():\n    return", gap.suffix, gap.snippets, gap.path)
    layouts = layouts_of(template)
    assert len(layouts) == 8
    assert present_layout(MODEL, tokenizer) in layouts
    for layout in layouts:
        prompts = Prompts(MODEL, tokenizer, None)
        ids = (await prompts.prompt(layout, gap)).ids
        at = {mark: ids.index(mark) for mark in (template.prefix_id, template.suffix_id, template.middle_ids[0])}
        assert (at[template.prefix_id] < at[template.suffix_id]) is (layout.order == "psm")
        tail = ids[at[template.middle_ids[0]] + 1 :]
        assert tail == (tuple(tokenizer.plain_ids("    retu")) if layout.line_after else ())
        alone = await prompts.prompt(layout, Gap(gap.prefix, gap.suffix))
        assert (len(ids) > len(alone.ids)) is layout.files
        assert alone.begins_with == ""
        if not layout.files:
            again = (await prompts.prompt(layout, typed)).ids
            kept = next(number for number, (a, b) in enumerate(zip(ids, again, strict=False)) if a != b)
            keeps_suffix = kept > at[template.suffix_id]
            assert keeps_suffix is (layout.line_after or layout.order == "spm"), layout.name
        prompts.close()


@pytest.mark.parametrize("shape", ["psm", "spm"])
@pytest.mark.parametrize("driver", ["embedded", "sglang", "vllm"])
@pytest.mark.parametrize(
    ("typed", "healed"),
    [
        ("return self.getUserNam", ("embedded", "sglang", "vllm")),
        ("    offse", ("embedded", "sglang", "vllm")),
        ("x = 12", ("embedded",)),
        ("", ()),
        ("switched off", ()),
    ],
)
async def test_an_engine_gets_what_it_gets_for_an_editors_request(
    tmp_path: Path, shape: str, driver: str, typed: str, healed: tuple[str, ...]
) -> None:
    """In the layout that is served, an engine cannot tell the command's requests from those that it judges for."""
    folder = str(write_psm_model(tmp_path / "psm") if shape == "psm" else MODEL.tokenizer)
    tokenizer = Tokenizer.load(folder)
    fim = FillInTheMiddle(healing=typed != "switched off", min_confidence=0.0)
    model = msgspec.structs.replace(MODEL, tokenizer=folder, fim=fim)
    where = Target(model, drivers.get(driver).capabilities, OffLoopTokenizer(tokenizer))
    gap = Gap(f"def f(self):\n{typed}", "\n\nprint(f())\n")
    with contextlib.closing(Prompts(model, tokenizer, healing_of(where))) as prompts:
        prompt = await prompts.prompt(present_layout(model, tokenizer), gap)
    editors = {"prompt": gap.prefix, "suffix": gap.suffix, "max_tokens": MAX_TOKENS, "stop": ["\n"]}
    forms: list[tuple[WireFormat[Any], dict[str, Any]]] = [
        (FimFormat(RequestConfig()), {**editors, "temperature": 0, "stream": True}),
        (CompletionFormat(RequestConfig()), body_of("coder", prompt)),
    ]
    sent = []
    for form, body in forms:
        asked = form.decode(msgspec.json.encode({"model": "coder", **body}))
        generation = (await form.prepare(asked, "req_1", CALLER, "salt", where)).generation
        request = drivers.get(driver).generate(generation, "coder")
        sent.append((msgspec.json.decode(request.body), request.opening))
    assert sent[0] == sent[1]
    assert bool(prompt.begins_with) is (driver in healed)


def test_the_settings_are_those_that_differ() -> None:
    present = Layout("psm", line_after=False)
    assert settings_for(present, present, MODEL) == []
    [line] = settings_for(Layout("psm", line_after=True), present, MODEL)
    assert 'typed_line = "after_middle"' in line
    order, editors = settings_for(Layout("spm", line_after=False, files=True), present, MODEL)
    assert '"fim_order": "spm"' in order
    assert editors.startswith("editors: send parts of other files")


def test_a_model_whose_engines_lay_gaps_out_is_refused() -> None:
    require_layouts(MODEL, Pool("p", "vllm"))
    with pytest.raises(ConfigError, match=r"pools\.p\.driver: openai takes no token ids"):
        require_layouts(MODEL, Pool("p", "openai"))
    with pytest.raises(ConfigError, match=r"models\.coder\.tokenizer: none"):
        require_layouts(msgspec.structs.replace(MODEL, tokenizer=None), Pool("p", "vllm"))


def test_lines_are_drawn_from_all_files_in_turn_and_repeatably() -> None:
    drawn = draw(FILES, 6, 1)
    assert drawn == draw(FILES, 6, 1) != draw(FILES, 6, 2)
    assert [sorted(edit.file for edit in drawn[at : at + 3]) for at in (0, 3)] == [sorted(FILES)] * 2
    for edit in draw(FILES, 100, 1):
        line = edit.text[edit.text.rfind("\n", 0, edit.cursor) + 1 : edit.end]
        assert not line.startswith("#")
        assert 2 <= len(edit.wanted) < len(line)
        assert edit.text[edit.end] == "\n"
    assert len(draw(FILES, 100, 1)) == 9, "each line once"


def test_a_gap_shows_parts_of_other_files_that_share_names_with_it() -> None:
    files = {**FILES, "uses.py": "\n\n\ncompute_alpha(2)\n", "far.py": "nothing = here\n"}
    edit = next(edit for edit in draw(files, 100, 1) if edit.file == "alpha.py" and "compute" in edit.text)
    shown = [snippet.path for snippet in gap_of(edit, chunks_of(files, 1)).snippets]
    assert "uses.py" in shown
    assert not {"alpha.py", "far.py"} & set(shown)


@pytest.mark.parametrize("with_git", [True, False])
def test_sources_are_code_that_git_does_not_ignore(tmp_path: Path, with_git: bool) -> None:
    folder = tmp_path / "project"
    (folder / "node_modules").mkdir(parents=True)
    texts = {"a.py": "a = 1\r\n", "b.rs": "let b;\n", "node_modules/c.js": "c\n", "data.json": "{}", "big.py": ""}
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    (folder / "big.py").write_text("x" * (MAX_FILE_BYTES + 1))
    (folder / "binary.py").write_bytes(b"\xff\xfe")
    (tmp_path / "secret.py").write_text("secret = 1\n")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    deepest = Path(*"d" * MAX_DEPTH)
    (folder / deepest / "d").mkdir(parents=True)
    for place in (deepest, deepest / "d"):
        (folder / place / "deep.py").write_text("d = 1\n")
    expected = {"a.py": "a = 1\n", "b.rs": "let b;\n", f"{deepest}/deep.py": "d = 1\n"}
    if with_git:
        git(folder, "init")
        (folder / ".gitignore").write_text("node_modules\ndeep.py\n")
        (folder / ".git" / "info" / "exclude").write_text("b.rs\n")
        expected = {"a.py": "a = 1\n"}
    assert read_sources(folder) == expected
    if not with_git:  # a folder below a repository has the rules of the whole
        (folder / deepest / "deep.py").unlink()
        (folder / deepest / "d" / "deep.py").unlink()
    with pytest.raises(ConfigError, match="no source file"):
        read_sources(folder / "d")


def git(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *arguments], cwd=folder, check=True, env=environment, capture_output=True)


def test_a_repository_of_a_stranger_starts_no_program_and_shows_no_file_elsewhere(tmp_path: Path) -> None:
    """Its `.gitignore` is to be fetched, by a program that its configuration names; its index goes through a link."""
    elsewhere, folder, started = tmp_path / "elsewhere", tmp_path / "theirs", tmp_path / "started"
    (folder / "linked").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "secret.py").write_text("secret = 1\n")
    for name in ("a.py", "linked/secret.py", ".gitignore"):
        (folder / name).write_text("a = 1\n")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "update-index", "--skip-worktree", ".gitignore")
    for name in ("linked/secret.py", ".gitignore"):
        (folder / name).unlink()
    (folder / "linked").rmdir()
    (folder / "linked").symlink_to(elsewhere)
    shutil.rmtree(folder / ".git" / "objects")
    (folder / ".git" / "objects").mkdir()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "core.fsmonitor": f"touch {started}; false",
        "core.sshCommand": f"touch {started}; false",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": "ssh://nobody/x",
    }.items():
        git(folder, "config", key, value)
    texts = read_sources(folder)
    assert not started.exists()
    assert texts == {"a.py": "a = 1\n"}


def test_a_repository_that_git_cannot_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it ignores may be secret."""
    (tmp_path / "a.py").write_text("a = 1\n")
    git(tmp_path, "init")
    os.mkfifo(tmp_path / ".gitignore")
    monkeypatch.setattr(sources, "GIT_TIMEOUT_S", 0.5)
    with pytest.raises(ConfigError, match=r"--from .*: git could not list .* \(no answer in 0\.5 s\)"):
        read_sources(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="No such file or directory: 'git'"):
        read_sources(tmp_path)


def answers(right: int, computed: int | None, *, lines: int = 200) -> Answers:
    """The first `right` lines are exact."""
    exact = [float(number < right) for number in range(lines)]
    return Answers(exact, exact, [0.02, 0.04], () if computed is None else [computed] * 2)


@pytest.mark.parametrize(
    ("others", "chosen", "reason"),
    [
        ({"b": answers(130, 400), "c": answers(140, 400)}, "c", Reason.BETTER),
        ({"b": answers(103, 4)}, "b", Reason.CHEAPER),
        ({"b": answers(103, 300)}, "a", Reason.STAYS),  # not half
        ({"b": answers(92, 4)}, "a", Reason.STAYS),  # perhaps too many lines lost
        ({"b": answers(103, None)}, "a", Reason.STAYS),  # the engine reports no cached tokens
        ({"b": answers(60, 1), "c": answers(100, 400)}, "a", Reason.STAYS),
        ({}, "a", Reason.STAYS),
    ],
)
def test_a_layout_is_chosen_for_proof_alone(others: dict[str, Answers], chosen: str, reason: Reason) -> None:
    files = [str(number % 50) for number in range(200)]
    verdict = judge("a", {"a": answers(100, 400), **others}, files, 0.95)
    assert (verdict.layout, verdict.reason, verdict.files) == (chosen, reason, 50)
    assert verdict.standing("a").difference is None
    assert verdict.standing("a").first_token_ms == pytest.approx(30)


def test_a_healed_words_free_keystrokes_do_not_hide_the_dear_one_behind_it() -> None:
    files, dear = [str(number % 50) for number in range(200)], answers(100, None)
    prefix_first = msgspec.structs.replace(dear, keys_computed=[1, 1, 1, 1, 1, 1_495])
    line_last = msgspec.structs.replace(dear, keys_computed=[2, 2, 3, 2, 2, 1])
    verdict = judge("psm", {"psm": prefix_first, "psm-after": line_last}, files, 0.95)
    assert (verdict.layout, verdict.reason) == ("psm-after", Reason.CHEAPER)
    assert verdict.standing("psm").computed_tokens == 250


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            answers(140, 4),
            "coder: b completes 70.0% of the lines exactly, a (the present layout) 50.0%; at 99.5% confi",
        ),
        (
            answers(103, 4),
            "coder: b computes 4 prompt tokens for a keystroke on average, a (the present layout) 400; at 99.5% co",
        ),
    ],
)
def test_the_answer_comes_first_and_the_settings_last(other: Answers, said: str) -> None:
    verdict = judge("a", {"a": answers(100, 400), "b": other}, [str(number % 50) for number in range(200)], 0.995)
    report = report_of("coder", Path("/src"), verdict, Healed("tokens", 71), ["set b"])
    first, _, healing, *_, head, step = text_of(report).splitlines()
    assert first.startswith(said)
    assert healing.startswith("The half-typed word was healed in 71 of 200 lines, as the gateway does: the engine ge")
    assert (head, step) == ("To use it:", "  set b")


def test_a_model_that_completes_nothing_has_no_cheaper_layout() -> None:
    files = [str(number) for number in range(5_000)]
    both = {"a": answers(0, 400, lines=5_000), "b": answers(0, 1, lines=5_000)}
    assert judge("a", both, files, 0.95).reason is Reason.STAYS


def test_more_layouts_need_more_proof() -> None:
    files = [str(number % 50) for number in range(200)]
    close = {"a": answers(100, None), "b": answers(106, None)}
    more = {**close, **{f"x{number}": answers(50, None) for number in range(6)}}
    lower = [judge("a", each, files, 0.95).standing("b").lower or 0.0 for each in (close, more)]
    assert lower[0] > lower[1]
