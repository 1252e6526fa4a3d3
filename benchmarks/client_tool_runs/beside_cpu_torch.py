"""`sitecustomize` of the tools: lets the CUDA build of torchvision be imported beside a CPU build of torch.

Its operators cannot be loaded there, and two of its modules fail because they register functions for them. The tools
use none of these operators, so the two modules are empty.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

EMPTY = {"torchvision._meta_registrations", "torchvision._autograd_registrations"}


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in EMPTY else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        return None


sys.meta_path.insert(0, _Finder())
