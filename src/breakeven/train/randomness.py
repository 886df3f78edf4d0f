"""Random numbers that depend on nothing but the seed, the step and the row.

So a resumed run draws what it would have drawn, and a row the same in whatever pass or process.
"""

from __future__ import annotations

import zlib

import torch

from breakeven.data.artifact import Row


def generator_of(seed: int, number: int) -> torch.Generator:
    """An independent source of randomness for each number (a step, an epoch) of a run.

    The two are hashed together: PyTorch's CPU generator looks at 32 bits of its seed only.
    """
    return torch.Generator().manual_seed(zlib.crc32(f"{seed}/{number}".encode()))


def own_generator(generator: torch.Generator, row: Row, what: str) -> torch.Generator:
    """A row's own randomness for a purpose in the step of ``generator``, in any batch."""
    return torch.Generator().manual_seed(
        zlib.crc32(f"{generator.initial_seed()}/{row.id}/{what}".encode())
    )
