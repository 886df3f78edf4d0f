"""In which order things are run: interleaved, so that drift and neighbours hit all alike."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence


def interleaved(
    configs: Sequence[str], prompts: int, repeats: int, seed: int = 0
) -> Iterator[tuple[int, int, str]]:
    """Every ``(repeat, prompt, config)`` once, all configurations of a prompt side by side.

    Their order is shuffled anew for each prompt and repeat, so none always runs after the same
    neighbour or on a machine that has warmed up. The order depends on ``seed`` only.

    >>> list(interleaved(["ar", "a"], prompts=1, repeats=2))
    [(0, 0, 'ar'), (0, 0, 'a'), (1, 0, 'ar'), (1, 0, 'a')]
    """
    generator = random.Random(seed)
    for repeat in range(repeats):
        for prompt in range(prompts):
            order = list(configs)
            generator.shuffle(order)
            for config in order:
                yield repeat, prompt, config
