"""Which key goes to which engine, and what stops the start instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from contracts.desired_state import DesiredState, Pool, Replica
from contracts.errors import ConfigError, NoEngine
from engines.http import keys
from engines.http.keys import EngineKeys
from engines.http.origin import Origin

URL = "http://10.0.0.1:30000"
SECRET = "sk-own-Key-1"


def pool(name: str = "p", url: str = URL, driver: str = "sglang", **fields: Any) -> Pool:
    return Pool(name, driver, (Replica(f"{name}-1", url),), **fields)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "upstream.key"
    made.write_text(f"{SECRET}\n")
    return made


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at whenever their key is asked for."""
    monkeypatch.setattr(keys, "LOOK_EVERY_S", 0.0)


def test_each_pool_has_its_own_key_and_the_others_the_token(file: Path) -> None:
    pools = (
        pool("ours"), pool("embedded", "http://e", "embedded"),
        pool("file", "https://a.example.com", "openai", api_key_file=str(file)),
        pool("env", "https://b.example.com", "openai", api_key_env="UPSTREAM_KEY"),
        pool("none", "http://c:1", "openai", api_key_required=False),
    )  # fmt: skip
    for metrics_token, embedded in ((None, "token"), (lambda: "metrics", "metrics")):
        known = EngineKeys(lambda: "token", {"UPSTREAM_KEY": "of-env "}, metrics_token)
        known.require(pools)
        known.follow(pools)
        found = {one.name: known.key_for(one.replicas[0].url, one.name) for one in pools}
        assert found == {"ours": "token", "embedded": embedded, "file": SECRET, "env": "of-env", "none": ""}
        assert {one.name: known.key_for(one.replicas[0].url) for one in pools} == found


def test_an_engine_that_no_desired_state_names_is_sent_nothing(file: Path) -> None:
    known = EngineKeys(lambda: "token", {})
    known.follow((pool("ours"), pool("own", "http://other", api_key_file=str(file))))
    for url, name in (("http://attacker", "ours"), ("http://attacker", ""), (URL, "own"), (URL, "unheard-of")):
        with pytest.raises(NoEngine, match="not part of the fleet"):
            known.key_for(url, name)


def test_pools_that_share_a_url_keep_their_keys_apart(file: Path) -> None:
    known = EngineKeys(lambda: "token", {"B": "key-b"})
    shared = (pool("a", api_key_file=str(file)), pool("b", api_key_env="B"), pool("c", api_key_env="B"))
    known.follow(shared)
    assert [known.key_for(URL, name) for name in "abc"] == [SECRET, "key-b", "key-b"]
    with pytest.raises(NoEngine):
        known.key_for(URL)
    known.follow((shared[1], shared[2]))
    assert known.key_for(URL) == "key-b"
    assert known.key_for(URL, "a") == SECRET  # its requests may still run


@pytest.mark.usefixtures("looking")
def test_a_replaced_file_is_read_again_and_a_lost_one_keeps_the_last_key(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = EngineKeys(lambda: "token", {})
    known.follow((pool(api_key_file=str(file)),))
    assert known.key_for(URL, "p") == SECRET
    aside = file.with_name("new")
    aside.write_text("sk-second")
    aside.rename(file)
    assert known.key_for(URL, "p") == "sk-second"
    for spoil in (lambda: file.write_bytes(b"\xff\n"), lambda: file.write_text(""), file.unlink):
        spoil()
        assert known.key_for(URL, "p") == known.key_for(URL, "p") == "sk-second"
    assert caplog.text.count("the key read before stays in force") == 2  # unreadable, then absent: each once
    file.write_text("sk-third")
    assert known.key_for(URL, "p") == "sk-third"
    assert "sk-" not in caplog.text


def test_tokens_are_read_only_where_a_pool_needs_them(file: Path) -> None:
    read: list[str] = []
    known = EngineKeys(lambda: read.append("token") or "t", {}, lambda: read.append("metrics") or "m")  # type: ignore[func-returns-value]
    known.require((pool(api_key_file=str(file)), pool("none", api_key_required=False)))
    assert not read
    for _ in range(2):
        known.require((pool(driver="embedded"),))
    assert read == ["metrics"]
    known.require((pool(),))
    assert read == ["metrics", "token"]


def test_a_missing_key_stops_the_start_and_says_where_it_belongs(file: Path, tmp_path: Path) -> None:
    file.write_text("two words")
    empty = tmp_path / "empty"
    empty.touch()
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        (
            {"api_key_file": str(tmp_path / "absent")},
            r"pools\.p\.api_key_file: .*absent: no such file .*put the engines'",
        ),
        ({"api_key_file": str(empty)}, r"pools\.p\.api_key_file: .*one line of printable ASCII"),
        ({"api_key_file": str(file)}, r"pools\.p\.api_key_file: .*one line of printable ASCII"),
        ({"api_key_env": "ABSENT"}, r"pools\.p\.api_key_env: .*ABSENT is not set; set it"),
        ({"api_key_env": "SPACED"}, r"pools\.p\.api_key_env: .*SPACED holds no key"),
    )
    for fields, told in cases:
        known = EngineKeys(lambda: "token", {"SPACED": "two words"})
        with pytest.raises(ConfigError, match=told):
            known.require((pool(**fields),))
        with pytest.raises(ConfigError, match=told):
            known.require((Pool("p", "openai", **fields),))  # before it has replicas


def test_a_key_that_is_missing_later_costs_its_pool_only_and_the_client_no_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = tmp_path / "late"
    known = EngineKeys(lambda: "token", {})
    known.follow((pool(api_key_file=str(late)), pool("ours", "http://other")))
    for _ in range(2):
        with pytest.raises(NoEngine) as refused:
            known.key_for(URL, "p")
        assert str(late) not in refused.value.message
    assert caplog.text.count(str(late)) == 1
    assert known.key_for("http://other", "ours") == "token"
    late.write_text(SECRET)
    assert known.key_for(URL, "p") == SECRET


@pytest.mark.parametrize(
    "fields",
    [
        {"api_key_env": "sk-proj-abc"}, {"api_key_env": "hf_abcdef"}, {"api_key_env": "1ABC"},
        {"api_key_env": "SLIPSTREAM_KEY"}, {"api_key_file": "sk-proj-abc"}, {"api_key_file": "keys/upstream"},
        {"api_key_file": "/a", "api_key_env": "A"}, {"api_key_file": "/a", "api_key_required": False},
    ],
)  # fmt: skip
def test_a_pool_that_says_its_key_wrongly_is_refused_without_repeating_it(fields: dict[str, Any]) -> None:
    wrong = pool(**fields)
    with pytest.raises(ConfigError, match=r"pools\.p") as refused:
        wrong.check_api_key()
    for value in ("sk-proj-abc", "hf_abcdef"):
        assert value not in refused.value.message
    with pytest.raises(ConfigError):
        DesiredState(1, (), (wrong,)).check()


@pytest.mark.parametrize(
    ("driver", "url", "refused"),
    [
        ("openai", "https://api.example.com/v1", True), ("openai", "http://api.example.com", True),
        ("openai", "https://8.8.8.8", True), ("sglang", "http://8.8.8.8:30000", True),
        ("sglang", "http://[2001:4860:4860::8888]:1", True), ("embedded", "http://[::ffff:8.8.8.8]:1", True),
        ("sglang", "https://8.8.8.8", False), ("sglang", "http://gpu-0.prod.example.com:30000", False),
        ("openai", "http://127.0.0.1:1", False), ("openai", "http://vllm:8000", False),
        ("openai", "http://[::1]:8000", False), ("openai", "http://192.168.1.5", False),
        ("openai", "https://vllm.models.svc:8000", False), ("openai", "http://100.64.0.9", False),
    ],
)  # fmt: skip
def test_the_deployments_token_leaves_private_networks_by_no_oversight(driver: str, url: str, refused: bool) -> None:
    known = EngineKeys(lambda: "token", {"UPSTREAM_KEY": "own"})
    bare = pool(url=url, driver=driver)
    known.follow((bare,))
    if refused:
        with pytest.raises(ConfigError, match=r"pools\.p: the deployment's token would be sent to .* api_key_file"):
            known.require((bare,))
        with pytest.raises(NoEngine):
            known.key_for(url, "p")
    else:
        known.require((bare,))
        assert known.key_for(url, "p") == "token"
    for meant in ({"api_key_env": "UPSTREAM_KEY"}, {"api_key_required": False}):
        known.require((pool(url=url, driver=driver, **meant),))


def test_a_key_over_http_to_who_knows_where_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    known = EngineKeys(lambda: "token", {"K": "own"})
    known.require((pool(url="http://10.0.0.1"), pool(url="https://api.example.com", api_key_env="K")))
    assert not caplog.text
    known.require((pool("open", url="http://api.example.com", api_key_env="K"),))
    for _ in range(2):
        known.require((pool("dns", url="http://gpu-0.prod.example.com"),))
    assert caplog.text.count("over http") == 2
    assert "own" not in caplog.text


@pytest.mark.parametrize("address", ["::ffff:10.0.0.1", "2002:a00:1::1", "64:ff9b::10.0.0.1", "::1"])
def test_a_private_address_is_one_in_whatever_form(address: str) -> None:
    assert Origin.parse(f"http://[{address}]:8000").private


def test_addresses_are_told_apart() -> None:
    private = {
        host: Origin.parse(f"http://{host}").private
        for host in ("10.1.2.3", "1.1.1.1", "134744072", "0x08080808", "127.1", "a.b.c", "a", "2a", "a.local")
    }
    assert private == {
        "10.1.2.3": True,
        "1.1.1.1": False,
        "134744072": False,
        "0x08080808": False,
        "127.1": True,
        "a.b.c": None,
        "a": True,
        "2a": True,
        "a.local": True,
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else_is_named(file: Path) -> None:
    file.chmod(0)
    with pytest.raises(ConfigError, match=f"permission denied; .* readable for uid {os.geteuid()}"):
        EngineKeys(lambda: "token", {}).require((pool(api_key_file=str(file)),))
