"""Any drafter, policy, batch and verifier on any requests: plain decoding's answers, a true ledger.

The fast tier tries a few dozen combinations, always the same; the slow one hundreds, always others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from breakeven.core import Finish, Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.base import Policy
from breakeven.decode.policy.fixed import Confidence, Fixed
from breakeven.decode.policy.replay import JUDGED, replay
from breakeven.decode.request import Completion, Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.bonus import BonusCorrection, BonusHead, CorrectedPeftBD
from breakeven.drafters.early_exit import EarlyExit
from breakeven.drafters.fused import Fused
from breakeven.drafters.hybrid import Hybrid
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.registry import METHODS, untrained
from breakeven.drafters.suffix import Suffix
from breakeven.drafters.tree import Tree
from breakeven.train.bonus import BonusObjective
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.lora import RowLoRA
from simulated import CURVE, Dice
from tiny import tiny_config, tiny_verifier
from tiny_chat import byte_tokenizer
from training import fit, objective_of, own_rows

POSITIONS, VOCABULARY = 40, 264
CONFIG = tiny_config(vocab=VOCABULARY, max_position_embeddings=POSITIONS)
TOKENIZER = byte_tokenizer()


@cache
def verifier_of(kind: str) -> LeanVerifier:
    """PyTorch in fp64, the CPU kernels, passes as graphs hold them, int8 weights."""
    if kind == "static":
        return GraphVerifier(verifier_of("fp64"), capture=False)
    if kind == "fp64":
        return LeanVerifier.from_config(CONFIG, dtype=torch.float64)
    return LeanVerifier.from_config(CONFIG, int8=kind == "int8")


VERIFIERS = ("fp64", "fp32", "static", "int8")
HALVES = ("quantized", "peft-bd-quantized", "hybrid")
"""Methods with a rounded copy of the verifier, which one of int8 weights has not."""


@cache
def learned() -> BonusObjective:
    """A gated adapter and a bonus module with some of their drafts right."""
    verifier = tiny_verifier(vocab=VOCABULARY)
    rows = own_rows(verifier, 4)
    objective = objective_of("peft-bd-fused", verifier, rows)
    assert isinstance(objective, BonusObjective)
    fit(objective, rows, 30)
    return objective.eval()


def gated(verifier: LeanVerifier) -> GatedPeftBD:
    own = learned().lora
    adapter = RowLoRA(verifier.architecture, own.spec).to(verifier.dtype).requires_grad_(False)
    adapter.load_state_dict(own.state_dict())
    return GatedPeftBD(adapter, learned().plan)


def head(verifier: LeanVerifier) -> BonusHead:
    own = learned().bonus
    module = BonusCorrection(verifier.shape.hidden_size, own.rank).to(verifier.dtype)
    module.load_state_dict(own.state_dict())
    return BonusHead(module.requires_grad_(False), verifier)


def fused(
    verifier: LeanVerifier,
    groups: int | None = None,
    masks: int | None = None,
    *,
    bonus: bool = False,
) -> Fused:
    block = gated(verifier)
    module = head(verifier) if bonus else None
    return Fused(block.adapter, block.plan, groups=groups, masks=masks, bonus=module)


Maker = Callable[[LeanVerifier], Drafter]


def corrected(verifier: LeanVerifier) -> CorrectedPeftBD:
    block = gated(verifier)
    return CorrectedPeftBD(block.adapter, block.plan, None, head(verifier))


def behind_lookups(name: str) -> Maker:
    return lambda v: Hybrid(Suffix(), MAKERS[name](v), match=2)


def new(name: str) -> Maker:
    def make(verifier: LeanVerifier) -> Drafter:
        found = untrained(name, verifier, 6)
        assert found is not None
        return found

    return make


MAKERS: dict[str, Maker] = {
    **{name: new(name) for name in METHODS},
    "early-exit": lambda v: EarlyExit(v.shape.layers, 1),
    "peft-bd-gated": gated,
    "peft-bd-fused": fused,
    "tree": lambda v: Tree(gated(v)),
    "corrected": corrected,
    "tree of corrected": lambda v: Tree(corrected(v)),
    "fused, one group of two": lambda v: fused(v, 1, 2),
    "fused, without masks": lambda v: fused(v, None, 0),
    "fused with bonus": lambda v: fused(v, bonus=True),
    "fused with bonus, two groups": lambda v: fused(v, 2, 3, bonus=True),
}
for _name in ("peft-bd", "peft-bd-gated", "peft-bd-fused", "fastmtp", "layer-skip", "early-exit"):
    MAKERS[f"hybrid of {_name}"] = behind_lookups(_name)
MAKERS["hybrid of fused with bonus"] = behind_lookups("fused with bonus")

POLICIES: dict[str, Callable[[int], Policy]] = {
    "fixed": Fixed,
    "confidence": Confidence,
    "adaptive": lambda k: Adaptive(k, CURVE),
    "dice": Dice,
}


@dataclass(frozen=True)
class Case:
    """One combination, drafted for once or, with the same drafter and policy, twice."""

    verifier: str
    method: str
    policy: str
    k: int
    batches: tuple[int, ...]
    requests: tuple[Request, ...]
    abandoned: bool  # whether a first run is given up after one answer
    cache_bytes: int | None

    def __str__(self) -> str:
        return f"{self.method} on {self.verifier}, {self.policy} {self.k}, batches {self.batches}"


@st.composite
def requests(draw: st.DrawFn, kind: str) -> tuple[Request, ...]:
    """Prompts up to the model's last position, answers that end by all that can end them."""
    verifier, found = verifier_of(kind), []
    for index in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 12) | st.integers(POSITIONS - 6, POSITIONS - 1))
        seed = draw(st.integers(0, 5))
        ids = torch.randint(256, (size,), generator=torch.Generator().manual_seed(seed))
        request = Request(str(index), tuple(ids.tolist()), draw(st.integers(1, 30)))
        [whole] = generate(verifier, [request])
        place = draw(st.integers(0, len(whole.tokens) - 1))
        ends = draw(st.sampled_from(("budget", "token", "string")))
        if ends == "token":
            request = replace(request, eos=frozenset({whole.tokens[place], VOCABULARY - 1}))
        elif stop := TOKENIZER.decode(whole.tokens[place : place + 2]):
            request = replace(request, stop=(stop,) if ends == "string" else ())
        found.append(request)
    return tuple(found)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(VERIFIERS))
    names = [name for name in MAKERS if kind != "int8" or name not in HALVES]
    return Case(
        verifier=kind,
        method=draw(st.sampled_from(sorted(names))),
        policy=draw(st.sampled_from(sorted(POLICIES))),
        k=draw(st.integers(1, 8)),
        batches=tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))),
        requests=draw(requests(kind)),
        abandoned=draw(st.booleans()),
        cache_bytes=draw(st.sampled_from((None, 40_000))),
    )


def said(answers: Sequence[Completion]) -> dict[str, tuple[list[int], Finish, str | None]]:
    return {c.id: (c.tokens, c.finish, c.text) for c in answers}


def check(case: Case) -> None:
    verifier, asked = verifier_of(case.verifier), case.requests
    plain = said(list(generate(verifier, asked, tokenizer=TOKENIZER)))
    drafter, policy = MAKERS[case.method](verifier), POLICIES[case.policy](case.k)
    ways = {"drafter": drafter, "policy": policy, "tokenizer": TOKENIZER}
    if case.abandoned:
        next(generate(verifier, asked, batch=3, **ways))
        policy = ways["policy"] = POLICIES[case.policy](case.k)
    for number, batch in enumerate(case.batches):
        ledger = Ledger()
        answers = list(
            generate(
                verifier,
                asked,
                batch=batch,
                ledger=ledger,
                cache_bytes=case.cache_bytes,
                **ways,
            )
        )
        assert said(answers) == plain, case
        check_sums(case, ledger, answers)
        if case.policy == "adaptive" and not number:
            check_replay(case, ledger, verifier, drafter)


def check_sums(case: Case, ledger: Ledger, answers: Sequence[Completion]) -> None:
    """Every token is paid for by a pass, and every row of a pass has its use."""
    assert ledger.committed == sum(len(c.tokens) - 1 for c in answers), case
    for answer in answers:
        assert sum(r.committed for r in answer.rounds) == len(answer.tokens) - 1
        assert {r.request for r in answer.rounds} <= {answer.id}
    assert sorted(map(id, ledger.rounds)) == sorted(id(r) for c in answers for r in c.rounds)
    rounds = iter(ledger.rounds)
    for bought in ledger.passes:
        assert bought.seconds > 0
        if bought.phase not in JUDGED:
            continue
        own = [next(rounds) for _ in range(bought.batch)]
        needed = max(r.drafted + 1 - r.free for r in own)
        if bought.phase is Phase.PLAIN:
            assert (bought.rows, needed) == (1, 1), case
        elif "tree" in case.method:
            assert needed <= bought.rows <= case.k + 1
        elif "fused" in case.method:
            assert needed <= bought.rows <= needed + 4 * 3
        else:
            assert bought.rows == needed, case
        for r in own:
            assert r.free <= r.accepted <= r.drafted
            assert 1 <= r.committed <= r.accepted + 1
    assert next(rounds, None) is None


def check_replay(case: Case, ledger: Ledger, verifier: LeanVerifier, drafter: Drafter) -> None:
    fresh = POLICIES[case.policy](case.k)
    fresh.prepare(verifier, drafter)
    judged = [p.batch for p in ledger.passes if p.phase in JUDGED]
    chosen = [c for c, n in zip(replay(fresh, ledger), judged, strict=True) for _ in range(n)]
    assert chosen == [r.choice for r in ledger.rounds], case


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_a_combination(case: Case) -> None:
    check(case)


@pytest.mark.slow
@settings(max_examples=1500, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_more_combinations(case: Case) -> None:
    check(case)
