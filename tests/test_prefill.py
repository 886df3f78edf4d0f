"""Prompts that enter together: who shares a pass, and that it changes nothing."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.prefill import ROWS, groups, prefill
from breakeven.decode.request import Request
from tiny import tiny_verifier

LENGTHS = (100, 5, 6, 90, 3)


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(64, (n,), generator=generator).tolist() for n in LENGTHS]


@given(st.lists(st.integers(1, 200), max_size=12), st.integers(1, 100))
def test_groups_hold_all_in_order_and_few_rows(lengths: list[int], rows: int) -> None:
    found = list(groups(lengths, rows))
    assert [i for g in found for i in range(g.start, g.stop)] == list(range(len(lengths)))
    for part in found:
        size = part.stop - part.start
        assert size == 1 or size * max(lengths[part]) <= rows
    for left, right in pairwise(found):  # none could have taken the next
        joined = lengths[left.start : right.start + 1]
        assert len(joined) * max(joined) > rows


def test_prompts_are_read_as_if_each_were_alone() -> None:
    verifier, ledger = tiny_verifier(), Ledger()
    together = verifier.new_cache(len(LENGTHS), 128)
    hidden, first = prefill(verifier, together, prompts(), ledger)
    assert [p.batch for p in ledger.passes] == [1, 2, 1, 1]
    assert max(p.rows * p.batch for p in ledger.passes if p.batch > 1) <= ROWS
    assert together.lengths.tolist() == list(LENGTHS)
    assert hidden.shape[:2] == (len(LENGTHS), max(LENGTHS))
    for slot, prompt in enumerate(prompts()):
        alone = verifier.new_cache(1, 128)
        states, [token] = prefill(verifier, alone, [prompt], Ledger())
        assert token == first[slot]
        torch.testing.assert_close(hidden[slot, : len(prompt)], states[0])
        size = len(prompt)
        torch.testing.assert_close(together.keys[:, slot, :, :size], alone.keys[:, 0, :, :size])


def test_a_batch_of_unequal_prompts_pays_for_no_padding() -> None:
    verifier, ledger = tiny_verifier(), Ledger()
    asked = [Request(str(i), tuple(p), 4) for i, p in enumerate(prompts())]
    list(generate(verifier, asked, batch=5, ledger=ledger))
    read = sum(p.rows * p.batch for p in ledger.passes if p.phase is Phase.PREFILL)
    assert read == sum(LENGTHS) + 1
