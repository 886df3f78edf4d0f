"""Token-wise and block verification are lossless, by exact enumeration; wrong ones are not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from breakeven.decode.acceptance import RULES, Block, Rule, TokenWise, normalised, ratios
from breakeven.measure.enumeration import Enumerated, enumerate_rule, toy_law

SIZE, DRAFTS = 3, 3


def enumerated(rule: Rule, seed: int, factorised: bool = False) -> Enumerated:
    verifier = toy_law(SIZE, DRAFTS, seed)
    drafter = toy_law(SIZE, DRAFTS, 100 + seed, factorised=factorised)
    return enumerate_rule(rule, verifier, drafter, vocabulary=SIZE, drafts=DRAFTS)


@pytest.mark.parametrize("factorised", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_both_rules_give_the_verifiers_law_and_block_keeps_no_fewer(
    seed: int, factorised: bool
) -> None:
    single, block = (enumerated(RULES[name], seed, factorised) for name in ("residual", "block"))
    assert single.lossless, single.error
    assert block.lossless, block.error
    assert block.accepted >= single.accepted - 1e-12


def test_block_verification_keeps_more_of_weak_drafts() -> None:
    gains = [enumerated(Block(), s).accepted - enumerated(TokenWise(), s).accepted for s in (0, 1)]
    assert max(gains) > 0.01


def test_a_perfect_drafter_is_always_accepted() -> None:
    law = toy_law(SIZE, DRAFTS, 5)
    for rule in RULES.values():
        found = enumerate_rule(rule, law, law, vocabulary=SIZE, drafts=DRAFTS)
        assert found.lossless
        assert found.accepted == pytest.approx(DRAFTS)


class KeepsTooMuch(TokenWise):
    """Accepts a little more than it may."""

    def thresholds(self, p: Tensor, q: Tensor, tokens: Sequence[int]) -> Tensor:
        return (1.1 * ratios(p, q, tokens)).clamp(max=1.0)


class ForgetsTheResidual(TokenWise):
    """Takes the next token from p after a rejection as well."""

    def residual(self, p: Tensor, q: Tensor, tokens: Sequence[int], accepted: int) -> Tensor:
        return p[accepted]


class StopsEarly(Block):
    """Block thresholds, but breaks at the first failure."""

    def accepted(self, passes: Sequence[bool]) -> int:
        return TokenWise().accepted(passes)


class TokenWiseResidual(Block):
    """Block acceptance with the residual of the other rule."""

    def residual(self, p: Tensor, q: Tensor, tokens: Sequence[int], accepted: int) -> Tensor:
        return TokenWise().residual(p, q, tokens, accepted)


class CutsOnlyAtTheEnd(Block):
    """Weights that may exceed 1 on the way."""

    @staticmethod
    def weights(p: Tensor, q: Tensor, tokens: Sequence[int]) -> Tensor:
        product = torch.cat((p.new_ones(1), ratios(p, q, tokens).cumprod(0)))
        return product.clamp(max=1.0)


@pytest.mark.parametrize(
    "wrong",
    [KeepsTooMuch, ForgetsTheResidual, StopsEarly, TokenWiseResidual, CutsOnlyAtTheEnd],
)
def test_the_enumeration_finds_wrong_rules(wrong: type[Rule]) -> None:
    assert max(enumerated(wrong(), seed).error for seed in range(3)) > 1e-3


@pytest.mark.parametrize("name", sorted(RULES))
def test_decide_follows_its_thresholds(name: str) -> None:
    rule, law, other = RULES[name], toy_law(SIZE, 3, 1), toy_law(SIZE, 3, 9)
    tokens = (0, 2, 1)
    p = torch.stack([law(tokens[:i]) for i in range(4)])
    q = torch.stack([other(tokens[:i]) for i in range(3)])
    h = rule.thresholds(p, q, tokens)
    all_, last = rule.decide(p, q, tokens, torch.zeros(3))
    assert all_ == 3
    assert torch.equal(last, p[3])
    none, first = rule.decide(p, q, tokens, torch.full((3,), 2.0))
    assert none == 0
    assert torch.allclose(first, normalised(p[0] - q[0]))
    uniforms = torch.tensor([h[0] + 1, h[1], h[2] + 1])
    assert rule.decide(p, q, tokens, uniforms)[0] == (0 if name == "residual" else 2)
