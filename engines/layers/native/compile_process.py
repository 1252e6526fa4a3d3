"""Compiles the kernels for one form of model in a process of its own: `python -m` this module with the form's numbers.

The compiler takes 70 MiB or more that a process never frees. At the first start on a machine, an engine therefore has
its kernels compiled here, and loads the result.
"""

from __future__ import annotations

import fcntl
import logging
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from engines.layers.native.attention import MAX_VECTORS
from engines.layers.native.compiled import KernelCache, marker_file
from engines.layers.native.compiling import COMPILING, WAITING
from engines.layers.native.vectors import LANES

logger = logging.getLogger(__name__)
TIMEOUT_S = 300.0
"""Compilation takes 10 to 20 seconds of one core."""


class Form(NamedTuple):
    """The properties of a model that determine its kernels."""

    together: int
    """Query heads that share a key and are computed at once."""
    vectors: int
    """Vectors of a head."""
    coded: bool
    """Whether the weights are 8-bit integers."""

    @classmethod
    def of(cls, heads: int, kv_heads: int, head_dim: int, *, coded: bool) -> Form:
        """The form of a model that the native kernels support."""
        shared, vectors = heads // kv_heads, head_dim // LANES
        return cls(shared if shared * vectors <= MAX_VECTORS else 1, vectors, coded)


def compile_in_subprocess(form: Form) -> None:
    """Compile the kernels in another process unless they are cached already. If it fails, log the reason: this process
    then compiles them."""
    marker = marker_file("-".join(str(int(number)) for number in form))
    if marker is None or marker.exists():
        return
    command = [sys.executable, "-m", __name__, *(str(int(number)) for number in form)]
    try:
        # engines that start together wait for the first one's kernels
        with marker.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.info(WAITING)
                fcntl.flock(lock, fcntl.LOCK_EX)
            if marker.exists():
                return
            logger.info(COMPILING)
            subprocess.run(
                command, check=True, timeout=TIMEOUT_S, cwd=Path(__file__).parents[3], stdin=subprocess.DEVNULL,
                capture_output=True,
            )  # fmt: skip
            marker.touch(mode=0o600)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {error.returncode}"]
        logger.warning("the process that compiles the kernels failed, so this one compiles them: %s", reason[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("the kernels cannot be compiled in another process, so this one compiles them: %s", error)


def _compile(form: Form) -> None:
    # only the process that compiles needs a decoder
    from engines.layers.native.decoder import LayerWeights, NativeDecoder
    from engines.layers.native.int8 import Int8Panels
    from engines.layers.native.matmul import Panels

    head_dim = LANES * form.vectors
    width = form.together * head_dim

    def matrix(outputs: int, inputs: int) -> Panels | Int8Panels:
        if form.coded:
            return Int8Panels(torch.zeros(outputs, inputs, dtype=torch.int8), torch.ones(outputs))
        return Panels(torch.zeros(outputs, inputs, dtype=torch.bfloat16))

    norm, embedding = torch.ones(width), matrix(1, width)
    layer = LayerWeights(
        matrix(width + 2 * head_dim, width), matrix(width, width), matrix(4, width), matrix(width, 2), norm, norm, None
    )
    NativeDecoder([layer], embedding, norm, 1e-5, torch.zeros(1, head_dim), form.together, 1, 2)
    embedding(torch.zeros(1, width))


if __name__ == "__main__":
    torch.set_num_threads(1)
    KernelCache.must_save = True
    _compile(Form(int(sys.argv[1]), int(sys.argv[2]), coded=sys.argv[3] == "1"))
