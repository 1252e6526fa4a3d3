"""All boards, in the order in which the guide lists them."""

from __future__ import annotations

from infra.grafana.boards import engine, ledger, overview, pool, router, tenant, tier

BOARDS = (
    overview.BOARD,
    tier.BOARD,
    pool.BOARD,
    tenant.BOARD,
    engine.BOARD,
    router.BOARD,
    ledger.BOARD,
)
