"""Any drafter, policy, batch and verifier on any requests: plain decoding's answers, a true ledger.

The fast tier tries a few combinations of each method, always the same; the slow one many hundreds,
always others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from breakeven.core import Draft, Finish, Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.base import Policy
from breakeven.decode.policy.fixed import Confidence, Fixed
from breakeven.decode.policy.replay import JUDGED, replay
from breakeven.decode.request import Completion, Request
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.bonus import BonusCorrection, BonusHead, CorrectedPeftBD
from breakeven.drafters.early_exit import EarlyExit
from breakeven.drafters.fused import Fused
from breakeven.drafters.hybrid import Hybrid
from breakeven.drafters.marginals import Candidates, MarginalDrafter
from breakeven.drafters.peft_bd import GatedPeftBD, PeftBD
from breakeven.drafters.registry import METHODS, untrained
from breakeven.drafters.suffix import Suffix
from breakeven.drafters.tree import Tree
from breakeven.train.bonus import BonusObjective
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.lora import LoRASpec, RowLoRA
from simulated import CURVE, Dice
from tiny import FAMILIES, tiny_config
from tiny_chat import byte_tokenizer
from training import fit, objective_of, own_rows

POSITIONS, VOCABULARY = 40, 264
TOKENIZER = byte_tokenizer()
VERIFIERS = ("fp64", "fp32", "static", "int8")
HALVES = ("quantized", "peft-bd-quantized", "hybrid")
"""Methods with a rounded copy of the verifier, which one of int8 weights has not."""


def config_of(family: str) -> Any:
    """Two layers; all but Llama with a head of its own."""
    tied = family == "llama"
    sizes = {"vocab": VOCABULARY, "layers": 2, "max_position_embeddings": POSITIONS}
    return tiny_config(family, **sizes, tie_word_embeddings=tied)


@cache
def verifier_of(kind: str, family: str) -> LeanVerifier:
    """PyTorch in fp64, the CPU kernels, passes as graphs hold them, int8 weights."""
    if kind == "static":
        return GraphVerifier(verifier_of("fp64", family), capture=False)
    dtype = torch.float64 if kind == "fp64" else torch.float32
    return LeanVerifier.from_config(config_of(family), dtype=dtype, int8=kind == "int8")


@cache
def learned(family: str) -> BonusObjective:
    """A gated adapter and a bonus module with some of their drafts right."""
    verifier = verifier_of("fp64", family)
    rows = own_rows(verifier, 3)
    objective = objective_of("peft-bd-fused", verifier, rows)
    assert isinstance(objective, BonusObjective)
    fit(objective, rows, 15)
    return objective.eval()


def gated(verifier: LeanVerifier) -> GatedPeftBD:
    own = learned(verifier.architecture.family)
    adapter = RowLoRA(verifier.architecture, own.lora.spec).to(verifier.dtype)
    adapter.load_state_dict(own.lora.state_dict())
    return GatedPeftBD(adapter.requires_grad_(False), own.plan)


def head(verifier: LeanVerifier) -> BonusHead:
    own = learned(verifier.architecture.family).bonus
    module = BonusCorrection(verifier.shape.hidden_size, own.rank).to(verifier.dtype)
    module.load_state_dict(own.state_dict())
    return BonusHead(module.requires_grad_(False), verifier)


def fused(
    verifier: LeanVerifier,
    groups: int | None = None,
    masks: int | None = None,
    drafts: int | None = None,
    *,
    bonus: bool = False,
) -> Fused:
    block, module = gated(verifier), head(verifier) if bonus else None
    return Fused(block.adapter, block.plan, groups=groups, masks=masks, drafts=drafts, bonus=module)


def corrected(verifier: LeanVerifier) -> CorrectedPeftBD:
    block = gated(verifier)
    return CorrectedPeftBD(block.adapter, block.plan, None, head(verifier))


Maker = Callable[[LeanVerifier], Drafter]


def new(name: str) -> Maker:
    def make(verifier: LeanVerifier) -> Drafter:
        found = untrained(name, verifier, 6)
        assert found is not None
        return found

    return make


def block(plan: BlockPlan, **options: Any) -> Maker:
    """A block drafter of another shape, its weights noise."""

    def make(verifier: LeanVerifier) -> Drafter:
        last = plan.last
        layers = None if last is None else tuple(range(2 - last, 2))
        torch.manual_seed(0)
        adapter = RowLoRA(verifier.architecture, LoRASpec(4, 8.0, layers, late=last is not None))
        for weight in adapter.to(verifier.dtype).parameters():
            nn.init.normal_(weight, std=0.1)
        kind = GatedPeftBD if plan.gated else PeftBD
        return kind(adapter.requires_grad_(False), plan, **options)

    return make


def late_fused(verifier: LeanVerifier) -> Fused:
    inner = block(BlockPlan(3, last=1))(verifier)
    assert isinstance(inner, GatedPeftBD)
    return Fused(inner.adapter, inner.plan)


class Forked(MarginalDrafter):
    """Knows the answer and gives it as the second choice of every other position."""

    name = "forked"

    def propose(self, context: Context, k: int) -> list[Draft]:
        found = self.candidates(context, k, 1)
        return [Draft(tuple(place[0][0] for place in places)) for places in found]

    def candidates(self, context: Context, k: int, top: int) -> list[list[Candidates]]:
        asked = [Request("", tuple(tokens), k) for tokens in context.tokens]
        answers = [next(iter(generate(context.verifier, [request]))) for request in asked]
        return [[fork(token, place)[:top] for place, token in enumerate(a.tokens)] for a in answers]


def fork(token: int, place: int) -> list[tuple[int, float]]:
    other = (token + 1) % VOCABULARY
    return [(other, 0.5), (token, 0.4)] if place % 2 else [(token, 0.6), (other, 0.3)]


def behind_lookups(make: Maker) -> Maker:
    return lambda v: Hybrid(Suffix(), make(v), match=2)


SAME = BlockPlan(3, labels="same", anchoring="none")
ROOTED = BlockPlan(3, anchoring="root_in_block")
OWN = BlockPlan(3, labels="same", anchoring="none", gated=False)
MAKERS: dict[str, Maker] = {
    **{name: new(name) for name in METHODS},
    "early-exit": lambda v: EarlyExit(v.shape.layers, 1),
    "peft-bd-gated": gated,
    "peft-bd-fused": fused,
    "tree": lambda v: Tree(gated(v)),
    "corrected": corrected,
    "tree of corrected": lambda v: Tree(corrected(v)),
    "fused, one group of two": lambda v: fused(v, 1, 2),
    "fused, one draft": lambda v: fused(v, None, 3, 1),
    "fused, late": late_fused,
    "fused, without masks": lambda v: fused(v, None, 0),
    "fused, with bonus": lambda v: fused(v, bonus=True),
    "fused, with bonus, two groups": lambda v: fused(v, 2, bonus=True),
    "gated, causal": block(BlockPlan(3, causal=True)),
    "gated, late": block(BlockPlan(3, last=1)),
    "gated, same": block(SAME),
    "gated, rooted": block(ROOTED),
    "gated, two steps": block(BlockPlan(3), steps=2),
    "gated, filled": block(ROOTED, steps=3, refill="all"),
    "own, shifted": block(BlockPlan(3, labels="shift", anchoring="none", gated=False)),
    "own, rooted, two steps": block(replace(OWN, anchoring="root_in_block"), steps=2),
    "own, shared": block(OWN, cache="shared"),
    "forked tree": lambda _: Tree(Forked()),
    "hybrid of forked tree": lambda _: Hybrid(Suffix(), Tree(Forked()), match=2),
    "tree of rooted": lambda v: Tree(cast(GatedPeftBD, block(ROOTED)(v)), top=2),
}
for _name in ("peft-bd", "peft-bd-gated", "peft-bd-fused", "fastmtp", "layer-skip", "early-exit"):
    MAKERS[f"hybrid of {_name}"] = behind_lookups(MAKERS[_name])
MAKERS["hybrid of fused, with bonus"] = behind_lookups(MAKERS["fused, with bonus"])

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
    family: str
    method: str
    policy: str
    k: int
    batches: tuple[int, ...]
    requests: tuple[Request, ...]
    abandoned: bool  # whether a first run is given up after one answer
    cache_bytes: int | None

    def __str__(self) -> str:
        who = f"{self.method} on {self.family} {self.verifier}"
        return f"{who}, {self.policy} {self.k}, batches {self.batches}"


def down_from(most: int) -> st.SearchStrategy[int]:
    """1 to ``most``, the largest first: a short search begins with answers that are long."""
    return st.integers(1, most).map(lambda n: most + 1 - n)


@st.composite
def requests(draw: st.DrawFn, kind: str, family: str) -> tuple[Request, ...]:
    """Prompts up to the model's last position, answers that end by all that can end them."""
    verifier, found = verifier_of(kind, family), []
    for index in range(draw(down_from(3))):
        size = draw(st.integers(1, 12) | st.integers(POSITIONS - 6, POSITIONS - 1))
        seed = draw(st.integers(0, 5))
        ids = torch.randint(256, (size,), generator=torch.Generator().manual_seed(seed))
        request = Request(str(index), tuple(ids.tolist()), draw(down_from(18)))
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
def cases(draw: st.DrawFn, method: str) -> Case:
    kinds = [kind for kind in VERIFIERS if kind != "int8" or method not in HALVES]
    kind, family = draw(st.sampled_from(kinds)), draw(st.sampled_from(FAMILIES))
    return Case(
        verifier=kind,
        family=family,
        method=method,
        policy=draw(st.sampled_from(tuple(POLICIES))),
        k=draw(down_from(8)),
        batches=tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))),
        requests=draw(requests(kind, family)),
        abandoned=draw(st.booleans()),
        cache_bytes=draw(st.sampled_from((None, 120_000))),
    )


def said(answers: Sequence[Completion]) -> dict[str, tuple[list[int], Finish, str | None]]:
    return {c.id: (c.tokens, c.finish, c.text) for c in answers}


def check(case: Case) -> None:
    verifier, asked = verifier_of(case.verifier, case.family), case.requests
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


@pytest.mark.parametrize("method", MAKERS)
@settings(max_examples=2)
@given(data=st.data())
def test_a_few_combinations(method: str, data: st.DataObject) -> None:
    check(data.draw(cases(method)))


@pytest.mark.slow
@settings(max_examples=1500, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_many_combinations(data: st.DataObject) -> None:
    check(data.draw(st.sampled_from(sorted(MAKERS)).flatmap(cases)))
