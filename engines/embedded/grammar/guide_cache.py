"""Caches guides for repeated requests, so that no organization's guides crowd out another's."""

from __future__ import annotations

from collections import OrderedDict

from engines.embedded.grammar.guide import Guide


class GuideCache:
    """Keeps up to `kept` guides in all. Above, the organization with the most loses its least recently used one."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._count = 0
        self._tenants: OrderedDict[str, OrderedDict[str, Guide]] = OrderedDict()

    def get(self, tenant: str, text: str) -> Guide | None:
        """The tenant's guide for a grammar, or None. A guide whose lexer is full is dropped."""
        guide = self._tenants.get(tenant, OrderedDict()).get(text)
        if guide is None:
            return None
        if guide.exhausted:
            self._drop(tenant, text)
            return None
        self._tenants.move_to_end(tenant)
        self._tenants[tenant].move_to_end(text)
        return guide

    def put(self, tenant: str, text: str, guide: Guide) -> None:
        """Keep a tenant's guide for a grammar. In a full cache, the tenant with the most guides loses its oldest."""
        own = self._tenants.setdefault(tenant, OrderedDict())
        self._count += text not in own
        own[text] = guide
        own.move_to_end(text)
        self._tenants.move_to_end(tenant)
        while self._count > self._kept:
            # among equals, the tenant used least recently
            largest = max(self._tenants, key=lambda name: len(self._tenants[name]))
            self._drop(largest, next(iter(self._tenants[largest])))

    def _drop(self, tenant: str, text: str) -> None:
        own = self._tenants[tenant]
        del own[text]
        self._count -= 1
        if not own:
            del self._tenants[tenant]
