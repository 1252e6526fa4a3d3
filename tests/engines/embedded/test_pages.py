"""Pages: reference counts, states, and the budget they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import ConfigError
from engines.embedded.config import KVConfig
from engines.embedded.kv.pages import PagePool
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import load_model


def test_a_page_is_free_when_its_last_owner_gives_it_back() -> None:
    pool = PagePool(4)
    pages = pool.take(3)
    assert pages is not None
    pool.share(pages[:1])
    pool.give_back(pages)
    assert pool.free == 3
    pool.give_back(pages[:1])
    assert pool.free == 4


def test_more_pages_than_there_are_takes_none() -> None:
    pool = PagePool(2)
    assert pool.take(3) is None
    assert pool.free == 2


def test_giving_back_twice_and_sharing_free_pages_are_errors() -> None:
    pool = PagePool(2)
    with pytest.raises(ValueError, match="twice"):
        pool.give_back([0])
    with pytest.raises(ValueError, match="free"):
        pool.share([1])


def test_a_budget_too_small_for_one_request_stops_the_start(tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    with pytest.raises(ConfigError, match=r"kv\.budget_bytes.*Give at least"):
        KVStore(model.config, KVConfig(budget_bytes=1000), model.dtype, 512)


def test_the_budget_follows_the_formula(tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    store = KVStore(model.config, KVConfig(budget_bytes=1 << 20, page_tokens=4), model.dtype, 64)
    assert store.token_bytes == 2 * 2 * 2 * 8 * 4
    assert store.total_pages * 4 * store.token_bytes <= 1 << 20
    assert store.pages.nbytes == (store.total_pages + 1) * 4 * store.token_bytes, "and the page that nobody is given"


def test_a_page_the_cache_keeps_is_idle_until_it_is_dropped_or_shared() -> None:
    pool = PagePool(2)
    pages = pool.take(2)
    assert pages is not None
    pool.keep(pages[0])
    pool.give_back(pages)
    assert (pool.free, pool.idle, pool.pinned) == (1, 1, 0)
    pool.share(pages[:1])
    assert (pool.free, pool.idle, pool.pinned) == (1, 0, 1)
    with pytest.raises(ValueError, match="not idle"):
        pool.drop(pages[0])
    pool.give_back(pages[:1])
    pool.drop(pages[0])
    assert (pool.free, pool.idle, pool.pinned) == (2, 0, 0)


def test_only_an_owned_page_is_kept_and_only_once() -> None:
    pool = PagePool(2)
    with pytest.raises(ValueError, match="free"):
        pool.keep(0)
    pages = pool.take(1)
    assert pages is not None
    pool.keep(pages[0])
    with pytest.raises(ValueError, match="already"):
        pool.keep(pages[0])


def test_copying_a_page_copies_every_layer(tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    store = KVStore(model.config, KVConfig(budget_bytes=1 << 20, page_tokens=4), model.dtype, 64)
    store.pages[:, 3] = 1.0
    store.copy(3, 5)
    assert bool((store.pages[:, 5] == 1).all())
    assert store.pages.sum() == 2 * store.pages[:, 3].sum()
