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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "slipstream.toml"


POOL = """
[[models]]
name = "Qwen/Qwen3"
tier = "chat"
pool = "{pool}"
context_tokens = 4096
[[pools]]
name = "{pool}"
driver = "sglang"
replicas = [{{ id = "{replica}", url = "http://localhost:1" }}]
"""
REFUSED = {
    "an unknown setting": (
        "[local]\ngatewas = 2\n", r"local\.gatewas: unknown setting .* did you mean local\.gateways\?"
    ),
    "a value out of range": ("[gateway]\nport = 70000\n", r"gateway\.port: .*70000"),
    "a probability of 1": ("[local.fim]\nmin_confidence = 1.0\n", r"local\.fim\.min_confidence"),
    "a probability below 0": ("[local.fim]\nmin_confidence = -0.1\n", r"local\.fim\.min_confidence"),
    "pools without models": (
        '[[pools]]\nname = "chat"\ndriver = "openai"\n', "pools: there are pools but no models"
    ),
    "a pool that no path can carry": (
        POOL.format(pool="gpu/blue", replica="a"),
        r"pools\.gpu/blue\.name: .* must not contain '/'.*Choose another name",
    ),
    "a replica that no path can carry": (
        POOL.format(pool="gpu", replica="rack/1"),
        r"pools\.gpu\.replicas\.rack/1\.id: .* must not contain '/'.*Choose another name",
    ),
    "the owner of the tables alone": (
        '[local]\nmigration_database_url = "postgresql://owner@db/slipstream"\n',
        r"local\.migration_database_url: .*local\.database_url must name the role",
    ),
    "a launch's old name": (
        POOL.format(pool="chat", replica="a") + "launch = { memory = 0.8 }\n", r"launch.*memory.*memory_fraction"
    ),
    **{
        f"a model's earlier fim_{name}": (
            f"[[models]]\nname = 'a'\nfim_{name} = false\n",
            rf"models\[0\]\.fim_{name}: unknown setting .*; it is fim\.{name} now",
        )
        for name in FillInTheMiddle.__struct_fields__
    },
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_wrong_is_named(fault: str, file: Path) -> None:
    text, said = REFUSED[fault]
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        settings.load(file)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('[local]\ngateways = 2\nchat_replicas = 2\ndata = "here"\n')
    monkeypatch.setenv("SLIPSTREAM_LOCAL__GATEWAYS", "3")
    monkeypatch.setenv("SLIPSTREAM_LOCAL__CHAT_REPLICAS", "3")
    local = settings.load(file, {"local.gateways": 4}).local
    assert (local.gateways, local.chat_replicas, local.data) == (4, 3, "here")


def test_one_role_may_own_the_tables_and_use_them() -> None:
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


def test_what_is_written_reads_back_the_same(file: Path) -> None:
    before = Settings(
        local=LocalConfig(data='/a b/"quoted" \\ tab\t', database_url="postgresql://x@/y?host=/z", gateways=3),
        models=(Model("chat", Tier.CHAT, "chat", 2048, aliases=("a", "b"), tokenizer="/models/chat"),),
        pools=(
            PoolSettings(
                "chat", "openai", replicas=(Replica("one", "http://127.0.0.1:1", 0.5), Replica("two", "http://x"))
            ),
        ),
    )
    file.write_text(toml.dump(before))
    assert settings.load(file) == before


@given(text=st.text(), number=st.floats(allow_nan=False, allow_infinity=False), names=st.lists(st.text(), max_size=4))
def test_any_text_survives_toml(text: str, number: float, names: list[str]) -> None:
    before = Outer(Inner(text, number, names), [Inner(text, 0.0, []), Inner("", number, names)])
    assert msgspec.convert(tomllib.loads(toml.dump(before)), Outer) == before


def test_settings_of_earlier_releases_are_taken_under_their_new_names(file: Path) -> None:
    file.write_text(
        '[[router.promises]]\ntier = "chat"\nprompt_tokens = 4096\nttft_s = 0.5\n[router.concurrency]\nmost = 90\n'
    )
    found = settings.load(file).router
    assert (found.slos, found.concurrency.max_limit) == ((SloClass(Tier.CHAT, 4_096, 0.5),), 90)


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
