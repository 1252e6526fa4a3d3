"""Which slices there are is a setting: a folder's files and long texts are slices as the generators are."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import ConfigError
from contracts.generation import Tier
from control.eval_runs.config import EvalsConfig
from evals.slices import code_tests
from evals.slices.code_edits import EDIT_SLICES
from evals.slices.files.error import SliceFileError
from evals.slices.registry import SLICES
from slipstream import settings
from slipstream.worker import main
from slipstream.worker_config import Queue
from tests.evals import published

GENERATORS = tuple(one.name for one in SLICES)
CHAT_MODEL = Path(__file__).parents[3] / "models" / "slipstream-chat"


def test_all_slices_are_asked_unless_some_are_named(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.jsonl").write_text(published.lines(published.GSM8K))
    assert EvalsConfig().chosen_for(Tier.CHAT) == GENERATORS
    assert EvalsConfig(slices_folder=str(tmp_path)).chosen_for(Tier.CHAT) == (*GENERATORS, "gsm8k")
    edits = (*(one.name for one in EDIT_SLICES), code_tests.NAME)
    assert EvalsConfig(slices_folder=str(tmp_path)).chosen_for(Tier.AUTOCOMPLETE) == edits
    named = EvalsConfig(slices_folder=str(tmp_path), slices=("gsm8k", "facts"))
    assert named.chosen_for(Tier.AUTOCOMPLETE) == ()
    named.check()
    assert named.chosen() == ("gsm8k", "facts")
    assert named.catalogue() is EvalsConfig(slices_folder=str(tmp_path), slices=("gsm8k", "facts")).catalogue()


def test_long_texts_are_slices_where_a_tokenizer_is_named() -> None:
    config = EvalsConfig(long_text_tokenizer=str(CHAT_MODEL), long_text_lengths=(800,))
    assert "ruler-vt-800" in config.chosen()
    assert config.catalogue().find("ruler-vt-800").item(1).max_tokens < 800


def test_a_slice_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evals\.slices: there is no slice 'gsm8k'; slices: facts, "):
        EvalsConfig(slices=("gsm8k",)).check()
    (tmp_path / "gsm8k.jsonl").write_text(published.lines(published.GSM8K))
    with pytest.raises(ConfigError, match="there is no slice 'gsm9k'"):
        EvalsConfig(slices_folder=str(tmp_path), slices=("gsm9k",)).chosen()


def test_a_worker_that_asks_does_not_start_with_a_file_it_cannot_read(tmp_path: Path) -> None:
    questions = tmp_path / "questions"
    questions.mkdir()
    (questions / "gsm8k.jsonl").write_text("{")
    file = tmp_path / "slipstream.toml"
    file.write_text(f'[local]\ndata = "{tmp_path / "data"}"\n[evals]\nslices_folder = "{questions}"\n')
    with pytest.raises(SliceFileError, match=r"gsm8k\.jsonl:1: is no JSON"):
        main(settings.load(file), [Queue.EVALS])
