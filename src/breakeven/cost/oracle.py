"""The oracle: what a drafter would be worth if its passes were cheaper.

The paper (*Accepted Prefixes Are Not All You Need*, arXiv 2607.12422) asks how fast its drafter
would be if a share r of the drafting time vanished, everything else as measured:

    T(r)             = T0 · (1 − r · ρ_d)           seconds a round
    throughput(r, A) = A / T(r)                     tokens a second
    A*(r)            = X · T(r)                     acceptance length needed to reach X tokens/s

r = 0 is the round as measured, r = 1 is free drafting. **A\\* means nothing without its r**: the
paper's "8" and "18.3" belong to r = 1; as measured the same targets need 15.9 and 36.5.

That oracle keeps the verify pass as dear as it was measured. Where the measured passes are slow
for reasons that are no part of the method (no CUDA graphs, say), no acceptance length can ever
win. The *complementary oracle* turns it round: keep the acceptance length, and let the passes
run at the price of one plain decoding step.

>>> oracle = PAPER.oracle()
>>> round(oracle.throughput(r=1), 3)                                # drafting free
67.865
>>> [round(oracle.required(x, r=1), 2) for x in (188.01, 431.36)]   # FastMTP, plain decoding
[7.98, 18.31]
>>> [round(oracle.required(x, r=0), 1) for x in (188.01, 431.36)]   # drafting as measured
[15.9, 36.5]
>>> both = oracle.at_plain_price(draft_steps=1)                     # both passes: a plain step
>>> round(both), round(both / oracle.plain, 2)
(621, 1.44)

What else the published figures imply, by arithmetic alone. Lengths: 1.881 of 16 drafts accepted,
0.511 of FastMTP's 3, 0.021 with two denoising steps; 20 profiled prompts of at most 256 tokens in
1,769 rounds leave room for 2.894 tokens a round at most, so 2.881 counts the verifier's own.

>>> [round(a - 1, 3) for a in (PAPER.peft_bd_committed, PAPER.fastmtp_committed,
...                            PAPER.two_step_committed)]
[1.881, 0.511, 0.021]
>>> round(20 * 256 / 1769, 3)
2.894

Times: a round of 84.6 ms, a plain step of 2.318 ms, a pass about 18 plain steps; 140 ms with a
second denoising step (55 ms more); 183 and 195 ms in the loop outside the engine.

>>> round(PAPER.round_s, 4), round(1e3 / PAPER.plain, 3)
(0.0846, 2.318)
>>> round(oracle.time.verify * PAPER.plain)
18
>>> round(1e3 * PAPER.two_step_committed / PAPER.two_step)
140
>>> round(1e3 * (PAPER.two_step_committed / PAPER.two_step - PAPER.round_s))
55
>>> [int(1e3 * a / speed) for a, speed in ((2.826, 15.4), (3.046, 15.6))]
[183, 195]

Accuracy: 0.6453 at every position would commit 2.82 tokens (the loop's 2.826); target-token over
masked-token accuracy is 0.684, near the 0.681 of blocks that mask ``ceil(16 u)`` tokens.

>>> round(1 / (1 - 0.6453), 2), round(0.4413 / 0.6453, 3)
(2.82, 0.684)
>>> from math import ceil
>>> shares = [ceil(16 * (0.3 + 0.7 * (i + 0.5) / 1000)) / 16 for i in range(1000)]
>>> round(sum(shares) / 1000, 2)
0.68
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.errors import RecipeError


@dataclass(frozen=True, slots=True)
class RoundTime:
    """Mean seconds of a round: drafting, verifying, everything else.

    >>> time = RoundTime(0.04, 0.05, 0.01)
    >>> round(time.total, 3), round(time.rho_d, 2), round(time.seconds(r=0.5), 3)
    (0.1, 0.4, 0.08)
    """

    draft: float
    verify: float
    other: float = 0.0

    def __post_init__(self) -> None:
        if min(self.draft, self.verify, self.other) < 0 or self.total <= 0:
            raise RecipeError(
                f"round of {self.draft:g} + {self.verify:g} + {self.other:g} s:"
                " no part may be negative and the sum must be above 0"
            )

    @classmethod
    def of_shares(cls, total: float, rho_d: float, rho_v: float) -> RoundTime:
        """From the total and the shares of drafting and verifying; what is left is other."""
        return cls(total * rho_d, total * rho_v, total * max(0.0, 1.0 - rho_d - rho_v))

    @property
    def total(self) -> float:
        """T0, seconds."""
        return self.draft + self.verify + self.other

    @property
    def rho_d(self) -> float:
        """Share of the round spent drafting."""
        return self.draft / self.total

    @property
    def rho_v(self) -> float:
        """Share of the round spent verifying."""
        return self.verify / self.total

    @property
    def rho_s(self) -> float:
        """Share of the round spent outside all passes."""
        return self.other / self.total

    def seconds(self, r: float = 0.0) -> float:
        """T(r): the round with a share ``r`` (0–1) of its drafting time gone."""
        if not 0.0 <= r <= 1.0:
            raise RecipeError(f"r = {r:g}: the share of drafting time saved lies in 0–1")
        return self.total * (1.0 - r * self.rho_d)


@dataclass(frozen=True, slots=True)
class Oracle:
    """One drafter beside plain decoding.

    ``committed`` is its acceptance length A (bonus token included), ``time`` its mean round,
    ``plain`` the tokens per second of plain decoding.
    """

    committed: float
    time: RoundTime
    plain: float

    def __post_init__(self) -> None:
        if self.committed < 1.0 or self.plain <= 0:
            raise RecipeError(
                f"acceptance length {self.committed:g}, plain decoding {self.plain:g} tok/s:"
                " a round commits at least 1 token and plain decoding takes time"
            )

    def throughput(self, r: float = 0.0) -> float:
        """Tokens per second with a share ``r`` of the drafting time gone."""
        return self.committed / self.time.seconds(r)

    def required(self, tokens_per_s: float, r: float) -> float:
        """A*(r): the acceptance length that reaches ``tokens_per_s``. State r beside it."""
        return tokens_per_s * self.time.seconds(r)

    def at_plain_price(
        self, draft_steps: float | None = None, *, with_other: bool = False
    ) -> float:
        """Tokens per second if the verify pass cost no more than one plain decoding step.

        ``draft_steps`` prices drafting in plain steps too; None leaves it as measured. Other time
        counts as none unless ``with_other``. A pass that is cheaper than a step already (a plain
        step includes time outside its pass) stays so. An upper bound: a wide pass costs more than
        a one-row pass.
        """
        step = 1.0 / self.plain
        verify = min(self.time.verify, step)
        draft = self.time.draft if draft_steps is None else draft_steps * step
        return self.committed / (draft + verify + (self.time.other if with_other else 0.0))


@dataclass(frozen=True, slots=True)
class Paper:
    """Published figures of arXiv 2607.12422 (Qwen3-0.6B, one request at a time).

    Speeds are tokens per second, ± as printed; acceptance lengths include the verifier's own
    token (the paper calls them "accepted tokens": 1.881 of 16 drafts, FastMTP 0.511 of 3).
    """

    source: str = "Accepted Prefixes Are Not All You Need, arXiv 2607.12422"
    plain: float = 431.36
    plain_spread: float = 4.25
    fastmtp: float = 188.01
    fastmtp_spread: float = 9.79
    fastmtp_committed: float = 1.511
    fastmtp_drafts: int = 3
    peft_bd: float = 34.05
    peft_bd_spread: float = 0.20
    peft_bd_committed: float = 2.881
    peft_bd_drafts: int = 16
    two_step: float = 7.29
    two_step_committed: float = 1.021
    draft_forward_s: float = 0.050285
    """Mean of 1,769 draft passes under the profiler (slower than the benchmark's)."""
    verify_forward_s: float = 0.050621
    """Mean of 1,769 verify passes under the profiler."""
    free_drafting: float = 67.865
    """Printed throughput of the oracle at r = 1."""
    rho_d: float = 0.49827
    """Printed as ≈ 0.498; the fifth digit is the one that gives the printed 67.865. The
    profiler's passes alone give 0.49833, so other time is next to nothing."""

    @property
    def round_s(self) -> float:
        """T0 = A / throughput: 0.0846 s."""
        return self.peft_bd_committed / self.peft_bd

    def oracle(self) -> Oracle:
        """The oracle of PEFT-BD with its three shares of T0."""
        rho_v = self.rho_d * self.verify_forward_s / self.draft_forward_s
        time = RoundTime.of_shares(self.round_s, self.rho_d, rho_v)
        return Oracle(self.peft_bd_committed, time, self.plain)


PAPER = Paper()
"""The paper's figures."""
