"""Settings: what is wrong is named, and what `up` writes for its processes reads back as the same settings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Model, Replica
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from contracts.settings import fields
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.lock import FolderLock
from router.config import SloClass
from slipstream import settings, toml
from slipstream.commands.options import running_settings
from slipstream.pool_settings import PoolSettings
from slipstream.settings import Settings


class Inner(msgspec.Struct):
    text: str
    number: float
    names: list[str]
    nothing: str | None = None


class Outer(msgspec.Struct):
    inner: Inner
    rows: list[Inner]


@pytest.mark.parametrize("name", FillInTheMiddle.__struct_fields__)
def test_the_earlier_names_of_a_models_fim_are_refused_with_the_new_one(name: str, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(f"[[models]]\nname = 'a'\nfim_{name} = false\n")
    with pytest.raises(ConfigError, match=rf"models\[0\]\.fim_{name}: unknown setting .*; it is fim\.{name} now"):
        settings.load(file)


def test_an_unknown_setting_is_answered_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[local]\ngatewas = 2\n")
    with pytest.raises(ConfigError, match=r"local\.gatewas: unknown setting .* did you mean local\.gateways\?"):
        settings.load(file)


def test_a_value_out_of_range_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[gateway]\nport = 70000\n")
    with pytest.raises(ConfigError, match=r"gateway\.port: .*70000"):
        settings.load(file)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[local]\ngateways = 2\nchat_replicas = 2\ndata = "here"\n')
    monkeypatch.setenv("SLIPSTREAM_LOCAL__GATEWAYS", "3")
    monkeypatch.setenv("SLIPSTREAM_LOCAL__CHAT_REPLICAS", "3")
    local = settings.load(file, {"local.gateways": 4}).local
    assert (local.gateways, local.chat_replicas, local.data) == (4, 3, "here")


def test_pools_without_models_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[[pools]]\nname = "chat"\ndriver = "openai"\n')
    with pytest.raises(ConfigError, match="pools: there are pools but no models"):
        settings.load(file)


@pytest.mark.parametrize(
    ("pool", "replica", "field"),
    [("gpu/blue", "a", r"pools\.gpu/blue\.name"), ("gpu", "rack/1", r"pools\.gpu\.replicas\.rack/1\.id")],
)
def test_a_name_that_no_path_can_carry_is_refused(tmp_path: Path, pool: str, replica: str, field: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        f'[[models]]\nname = "Qwen/Qwen3"\ntier = "chat"\npool = "{pool}"\ncontext_tokens = 4096\n'
        f'[[pools]]\nname = "{pool}"\ndriver = "openai"\n'
        f'[[pools.replicas]]\nid = "{replica}"\nurl = "http://localhost:1"\n'
    )
    with pytest.raises(ConfigError, match=f"{field}: .* has no '/'.*Write '-' instead"):
        settings.load(file)


def test_the_owner_of_the_tables_alone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[local]\nmigration_database_url = "postgresql://owner@db/slipstream"\n')
    with pytest.raises(ConfigError, match=r"local\.migration_database_url: .*local\.database_url must name the role"):
        settings.load(file)
    owned = Settings(local=LocalConfig(database_url="postgresql://one@db/slipstream"))
    assert owned.migration_database_url == owned.database_url


def test_the_example_file_is_valid_and_says_the_defaults() -> None:
    example = Path(settings.__file__).parent.parent / "slipstream.example.toml"
    assert settings.load(example) == Settings()
    told = tomllib.loads(example.read_text())
    defaults = msgspec.to_builtins(Settings())
    defaults["local"]["fim"] = msgspec.structs.asdict(FillInTheMiddle())  # leaves out what has its default
    assert told["local"]["fim"] == defaults["local"]["fim"]
    defaults = msgspec.json.decode(msgspec.json.encode(defaults))  # lists as TOML has them
    for section, values in told.items():
        for name, value in values.items():
            assert defaults[section][name] == value, f"{section}.{name}"


def test_every_setting_of_this_machine_is_in_the_example() -> None:
    text = (Path(settings.__file__).parent.parent / "slipstream.example.toml").read_text()
    for name, _ in fields(LocalConfig):
        assert f"{name.removeprefix('fim.')} = " in text, name


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    before = Settings(
        local=LocalConfig(data='/a b/"quoted" \\ tab\t', database_url="postgresql://x@/y?host=/z", gateways=3),
        models=(Model("chat", Tier.CHAT, "chat", 2048, aliases=("a", "b"), tokenizer="/models/chat"),),
        pools=(
            PoolSettings(
                "chat", "openai", replicas=(Replica("one", "http://127.0.0.1:1", 0.5), Replica("two", "http://x"))
            ),
        ),
    )
    file = tmp_path / "written.toml"
    file.write_text(toml.dump(before))
    assert settings.load(file) == before


@given(text=st.text(), number=st.floats(allow_nan=False, allow_infinity=False), names=st.lists(st.text(), max_size=4))
def test_any_text_survives_toml(text: str, number: float, names: list[str]) -> None:
    before = Outer(Inner(text, number, names), [Inner(text, 0.0, []), Inner("", number, names)])
    assert msgspec.convert(tomllib.loads(toml.dump(before)), Outer) == before


def test_settings_of_earlier_releases_are_taken_under_their_new_names(tmp_path: Path) -> None:
    file = tmp_path / "slipstream.toml"
    file.write_text('[[router.promises]]\ntier = "chat"\nprompt_tokens = 4096\nttft_s = 0.5\n')
    assert settings.load(file).router.slos == (SloClass(Tier.CHAT, 4_096, 0.5),)


def test_the_learnt_limits_upper_bound_is_taken_under_its_new_name(tmp_path: Path) -> None:
    file = tmp_path / "slipstream.toml"
    file.write_text("[router.concurrency]\nmost = 90\n")
    learnt = settings.load(file).router.concurrency
    assert learnt.max_limit == 90


def test_a_launchs_old_name_is_refused_by_its_new_one(tmp_path: Path) -> None:
    file = tmp_path / "slipstream.toml"
    file.write_text(
        '[[models]]\nname = "m"\ntier = "chat"\npool = "chat"\ncontext_tokens = 4096\n'
        '[[pools]]\nname = "chat"\ndriver = "sglang"\nlaunch = { memory = 0.8 }\n'
        'replicas = [{ id = "a", url = "http://127.0.0.1:1" }]\n'
    )
    with pytest.raises(ConfigError, match=r"launch.*memory.*memory_fraction"):
        settings.load(file)


def test_every_new_name_is_a_setting_and_no_old_one_is() -> None:
    known = {name for name, _ in fields(Settings)} | {f"pools[].{name}" for name, _ in fields(PoolSettings)}
    assert set(settings.RENAMED.values()) <= known
    assert not set(settings.RENAMED) & known


def test_a_settings_file_leads_to_the_ports_of_the_deployment_that_runs_on_its_data_folder(data_folder: Path) -> None:
    """A port that was taken: `up` chose another one and wrote it down."""
    data = DataFolder(data_folder)
    data.prepare()
    data.settings_file.write_text(f'[local]\ndata = "{data_folder}"\n[router]\ncontrol_port = 8155\n')
    file = data_folder / "mine.toml"
    file.write_text(f'[local]\ndata = "{data_folder}"\n[router]\ncontrol_port = 8144\n')
    lock = FolderLock(data.lock_file)
    lock.acquire()
    try:
        assert running_settings(file, None).router.control_port == 8155
    finally:
        lock.release()
    assert running_settings(file, None).router.control_port == 8144, "nothing runs: the file's word counts"
    assert running_settings(None, str(data_folder)).router.control_port == 8155


@pytest.mark.parametrize("least", ["1.0", "-0.1"])
def test_a_models_least_confidence_is_a_probability_below_1(least: str, tmp_path: Path) -> None:
    file = tmp_path / "slipstream.toml"
    file.write_text(f"[local.fim]\nmin_confidence = {least}\n")
    with pytest.raises(ConfigError, match=r"local\.fim\.min_confidence"):
        settings.load(file)
