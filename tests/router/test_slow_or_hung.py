"""An engine whose first token is overdue: slow, which its load reports show, or hung."""

from __future__ import annotations

import pytest

from contracts.generation import Tier
from contracts.prefix import BLOCK_TOKENS, chain_tokens, root
from router.config import SloClass
from tests.router.core_driver import Core
from tests.router.fakes import fleet

TOKENS = 64 * BLOCK_TOKENS
CAPACITY = 1_000_000
PROMISE = (SloClass(Tier.CHAT, 1 << 31, 120.0, 0.0),)


@pytest.mark.parametrize(("computes", "where"), [(True, "r1"), (False, "r2")])
def test_a_file_leaves_an_engine_that_hangs_and_stays_on_one_that_is_slow(computes: bool, where: str) -> None:
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=100), slos=PROMISE)
    core.learn(0.0005, ("r1", "r2"))
    hashes = chain_tokens(root("m"), list(range(TOKENS))).hashes
    core.served(TOKENS, 2.0, replica_id="r1", prefix_hashes=hashes, prefix_kind="tokens")
    for number in range(4):
        core.placed(f"other{number}", prompt_tokens=TOKENS, excluded_replicas=("r2",))
    core.placed("elsewhere", prompt_tokens=TOKENS, excluded_replicas=("r1",))
    for second in range(60):  # no first token comes
        core.now += 1.0
        used = 1_024 + (512 * second if computes else 0)
        core.polled("r1", running=4, used_tokens=used, capacity_tokens=CAPACITY, step_tokens=512, share_behind=0.25)
        core.polled("r2", running=1, used_tokens=64 * second, capacity_tokens=CAPACITY)
    core.began("elsewhere", 60.0)
    assert core.placed("key", prompt_tokens=TOKENS, prefix_hashes=hashes, prefix_kind="tokens") == where
