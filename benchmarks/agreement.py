"""How far the answers of the int8 verifier are those of the plain one.

    python -m benchmarks.agreement --prompts 12

Two counts for each held-out prompt. The plain verifier's answer is given to both, token by token,
and it is counted how often the int8 one would have said the same next; and both answer on their
own, where one other token changes all that follow. Neither says which answer is better.

Rounded weights also draft (``quantized``): one row behind the plain verifier's own keys and values,
its activations rounded as well where the processor multiplies 8-bit numbers. How often that first
draft is the plain verifier's token is counted with and without rounded activations.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.command import positive, start
from benchmarks.conditions import Report, parser
from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Row, load_artifact
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.measure.prompts import choose
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Verifier
from breakeven.verifier.load import Loaded, load_verifier
from breakeven.verifier.rows import Rows, chain

DEFINITIONS = {
    "tokens": "of the plain verifier's greedy answers",
    "same choice": "of them, those that int8 chooses too behind the same text",
    "same first draft, weights rounded": "of them, those that int8 weights draft",
    "same first draft, as it is drafted": "of them, those that `quantized` drafts here",
    "before the first other": "tokens that both say when each goes on from its own",
    "equal answers": "prompts whose two answers are the same to the last token",
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counts of one prompt."""

    id: str
    tokens: int
    same: int
    weights_drafts: int
    drafts: int
    prefix: int
    equal: bool


def answer(loaded: Loaded, prompt: Row, tokens: int) -> list[int]:
    """A greedy answer of at most so many tokens."""
    request = Request(prompt.id, tuple(prompt.prompt_ids), tokens, loaded.eos)
    [done] = generate(loaded.verifier, [request])
    return list(done.tokens)


def choices(verifier: Verifier, prompt: Sequence[int], said: Sequence[int]) -> list[int]:
    """What the verifier would say in place of each token of ``said``, behind those before it."""
    ids = torch.tensor([[*prompt, *said[:-1]]])
    cache = verifier.new_cache(1, ids.shape[1])
    rows = chain(ids, cache.lengths)
    out = verifier.run(Phase.PREFILL, rows, cache, Ledger(), logits="choices")
    assert out.choices is not None
    chosen: list[int] = out.choices[0, len(prompt) - 1 :].tolist()
    return chosen


def first_drafts(
    verifier: Verifier, twin: Verifier, prompt: Sequence[int], said: Sequence[int]
) -> list[int]:
    """What ``twin`` would draft for each token of ``said`` over the verifier's own cache."""
    ids, first = torch.tensor([[*prompt, *said[:-1]]]), len(prompt) - 1
    cache = verifier.new_cache(1, ids.shape[1] + len(said))
    verifier.run(Phase.PREFILL, chain(ids, cache.lengths), cache, Ledger(), logits="none")
    cache.commit(ids.shape[1])
    places = torch.arange(first, ids.shape[1])[None]
    alone = torch.eye(len(said), dtype=torch.bool)
    rows = Rows(ids[:, first:], places, alone, past=places)
    out = twin.run(Phase.DRAFT, rows, cache, Ledger(), logits="choices")
    assert out.choices is not None
    drafted: list[int] = out.choices[0].tolist()
    return drafted


def compare(plain: Loaded, rounded: Loaded, twin: Verifier, prompt: Row, tokens: int) -> Agreement:
    """All counts on one prompt."""
    said, other = answer(plain, prompt, tokens), answer(rounded, prompt, tokens)
    prefix = next((i for i, (a, b) in enumerate(zip(said, other, strict=False)) if a != b), None)

    def same(chosen: Sequence[int]) -> int:
        return sum(a == b for a, b in zip(said, chosen, strict=True))

    return Agreement(
        id=prompt.id,
        tokens=len(said),
        same=same(choices(rounded.verifier, prompt.prompt_ids, said)),
        weights_drafts=same(
            first_drafts(plain.verifier, rounded.verifier, prompt.prompt_ids, said)
        ),
        drafts=same(first_drafts(plain.verifier, twin, prompt.prompt_ids, said)),
        prefix=min(len(said), len(other)) if prefix is None else prefix,
        equal=said == other,
    )


def table(found: Sequence[Agreement]) -> Table:
    """The counts of all prompts together."""
    shown = Table("what", "count", "of", title=f"{len(found)} prompts")
    tokens = sum(a.tokens for a in found)
    shown.add_row("same choice", str(sum(a.same for a in found)), str(tokens))
    for what, same in (
        ("weights rounded", sum(a.weights_drafts for a in found)),
        ("as it is drafted", sum(a.drafts for a in found)),
    ):
        shown.add_row(f"same first draft, {what}", str(same), str(tokens))
    shown.add_row("before the first other", str(sum(a.prefix for a in found)), str(tokens))
    shown.add_row("equal answers", str(sum(a.equal for a in found)), str(len(found)))
    return shown


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    made = parser(__doc__ or "", tokens=96)
    made.add_argument("--prompts", type=positive, default=12)
    return made.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print the table, write the JSON."""
    options = parse(arguments)
    report = Report(options)
    plain = load_verifier(options.model, threads=options.threads)
    rounded = load_verifier(options.model, threads=options.threads, weights="int8")
    assert isinstance(plain.verifier, LeanVerifier)
    twin = plain.verifier.rounded()
    rows = load_artifact(options.artifact, plain.identity).rows("test")
    prompts = choose(rows, options.prompts, options.seed)
    found = [compare(plain, rounded, twin, prompt, options.tokens) for prompt in prompts]
    Console().print(table(found))
    report.write(DEFINITIONS, [], prompts=[asdict(a) for a in found])


if __name__ == "__main__":
    start(main)
