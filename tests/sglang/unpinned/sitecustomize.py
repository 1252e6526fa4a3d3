"""Lets the stock SGLang serve LoRA adapters on a machine without an accelerator: what it pins in memory stays pageable.

Its LoRA layers pin what they later copy to a device. PyTorch refuses that where there is no device, and where the
device is the CPU there is nothing to copy. On the path of the server's processes alone, before the `sitecustomize`
that the machine has, which is run as well.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIRST_THAT_PINS = "sglang.srt.lora.lora_manager"
MADE_PINNED = ("arange", "empty", "full", "ones", "tensor", "zeros")


def unpin() -> None:
    """PyTorch pins nothing any more in this process."""
    import torch

    def pageable(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            named.pop("pin_memory", None)
            return make(*given, **named)

        return made

    for name in MADE_PINNED:
        setattr(torch, name, pageable(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign]


class Unpinning(importlib.abc.MetaPathFinder):
    """Acts before the first module that pins is run: importing PyTorch here would burden every helper process."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == FIRST_THAT_PINS:
            sys.meta_path.remove(self)
            unpin()


def run_the_next() -> None:
    """Python runs one `sitecustomize`: the first on the path."""
    path = [folder for folder in sys.path if Path(folder or ".").resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


run_the_next()
sys.meta_path.insert(0, Unpinning())
