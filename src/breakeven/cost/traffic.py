"""Prices from weight traffic: what a drafter reads over what a plain step reads.

Where passes are bound by reading weights (one request on a GPU with graphs, or a CPU), a pass
costs what it reads. Then a drafter's price follows from parameter counts alone (ALGORITHMS 8.3),
and the head over the whole vocabulary is the floor of every small drafter.

Qwen3-0.6B, ``c_d`` of a round:

>>> q = QWEN3_06B
>>> round(q.body / 1e6, 1), round(q.head / 1e6, 1), round(q.head_share, 2)
(440.5, 155.6, 0.26)
>>> fastmtp = q.layer + 2 * q.hidden**2 + 3 * q.hidden
>>> fastmtp, round(q.price(fastmtp, passes=3), 2), round(q.price(fastmtp, 3, 32768), 2)
(17831168, 0.87, 0.26)
>>> [round(1 + q.price(fastmtp, 3, v), 2) for v in (None, 32768)]   # break-even with c_v = 1
[1.87, 1.26]
>>> round(q.price(q.body + 10_092_544), 2)                          # PEFT-BD: a full pass
1.02
>>> [round(q.price(n * q.layer + 5 * q.hidden**2), 2) for n in (5, 3, 1)]   # DFlash
[0.4, 0.35, 0.3]
>>> [round(q.price(4 * q.layer, 1, v), 2) for v in (None, 32768)]   # masks in the last 4 layers
[0.37, 0.16]
>>> round(1 - 4 * q.layer / (q.body + q.head), 2)                   # verify after 4 layers' exit
0.89
>>> eagle3 = 55_800_000 - 32768 * q.hidden
>>> round(q.price(eagle3, 7, 32768), 2)
0.66

Sizes: LoRA of rank 16 on the seven linears of a layer (16 heads, 8 of keys, of 128 numbers, 3072
in between). The paper's total with it is that of an embedding cut to 151,669 rows, 1.666 % of
which are trained; FastMTP's is that of the model and one layer, 2.905 %.

>>> lora = 16 * sum(a + b for a, b in [(1024, 2048), (1024, 1024), (1024, 1024), (2048, 1024),
...                                    (1024, 3072), (1024, 3072), (3072, 1024)])
>>> lora, 28 * lora
(360448, 10092544)
>>> whole = q.body + q.head
>>> whole, whole - (151_936 - 151_669) * q.hidden + 28 * lora, whole + fastmtp
(596049920, 605869056, 613881088)
>>> round(100 * 28 * lora / 605_869_056, 3), round(100 * fastmtp / (whole + fastmtp), 3)
(1.666, 2.905)

Floors: in bf16 the weights alone take so many ms to read on an H200, a 3090 and an A10 (4.8, 0.936
and 0.6 TB/s). Rows are nearly free up to about so many on an H200 and an A10 (989 and 125 TFLOPS),
which is 12 requests of 17 rows. 768 tokens of keys and values are 88 MB, 7 % of the weights.

>>> [round(2e-9 * whole / speed, 2) for speed in (4.8, 0.936, 0.6)]
[0.25, 1.27, 1.99]
>>> [round(flops / speed) for flops, speed in ((989, 4.8), (125, 0.6))], 206 // 17
([206, 208], 12)
>>> token = 28 * 2 * 8 * 128 * 2
>>> token, round(768 * token / 1e6), round(2 * whole / 1e6), round(768 * token / (2 * whole), 2)
(114688, 88, 1192, 0.07)
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.errors import RecipeError


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters that a plain step reads: ``body`` (all layers), and the head ``vocabulary`` rows.

    ``layer`` is one layer's, ``hidden`` the width of the model.
    """

    body: int
    layer: int
    hidden: int
    vocabulary: int

    @property
    def head(self) -> int:
        """Parameters of the head over the whole vocabulary."""
        return self.vocabulary * self.hidden

    @property
    def head_share(self) -> float:
        """Share of a plain step spent on the head."""
        return self.head / (self.body + self.head)

    def price(self, parameters: int, passes: int = 1, vocabulary: int | None = None) -> float:
        """``c_d``: ``passes`` over ``parameters`` and a head of ``vocabulary`` rows (None: all)."""
        rows = self.vocabulary if vocabulary is None else vocabulary
        return passes * (parameters + rows * self.hidden) / (self.body + self.head)


QWEN3_06B = Weights(body=440_467_456, layer=15_730_944, hidden=1024, vocabulary=151_936)
"""The paper's verifier: 28 layers and the final norm, a tied head."""


def pruned(draft: float, head_share: float, kept: float) -> float:
    """A drafting price after keeping the share ``kept`` of the draft vocabulary.

    ``head_share`` of the price is the head's, which shrinks with the rows that it keeps.

    >>> round(pruned(0.87, head_share=0.9, kept=0.25), 3)
    0.283
    """
    for name, share in (("head share", head_share), ("kept vocabulary", kept)):
        if not 0.0 <= share <= 1.0:
            raise RecipeError(f"{name} {share:g}: give a share in 0–1")
    return draft * (1.0 - head_share * (1.0 - kept))
