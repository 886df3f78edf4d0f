"""Run an exactness audit: decode plainly, decode with each drafter, judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from breakeven.core import Phase, Round
from breakeven.decode.policy.named import policy_named
from breakeven.decode.request import Completion
from breakeven.drafters.base import Drafter
from breakeven.drafters.scripted import AntiOracle, Oracle, RandomDrafter, Script
from breakeven.measure.audit import Audit, Level, judge
from breakeven.measure.configuration import PLAIN, Configuration
from breakeven.measure.control import Control, fixed_width_control
from breakeven.measure.divergence import Output
from breakeven.measure.prompts import Prompt
from breakeven.measure.records import Record
from breakeven.measure.rescore import Rescorer
from breakeven.measure.trial import Decoding, Method
from breakeven.progress import Meter, meter

Outputs = dict[str, Output]
"""By prompt id."""
SCRIPTED: dict[str, Callable[[Script, int], Drafter]] = {
    "oracle": Oracle,
    "anti-oracle": AntiOracle,
    "random": lambda script, vocab_size: RandomDrafter(vocab_size),
}
"""Drafters an audit can always run: always right, always wrong, and neither."""


def inspect(
    decoding: Decoding,
    prompts: Sequence[Prompt],
    configurations: Sequence[Configuration],
    make_drafter: Callable[[Configuration], Drafter],
    *,
    level: Level = Level.L2,
) -> list[Audit]:
    """Audit every configuration on ``prompts``; names in :data:`SCRIPTED` need no weights.

    From level L1 on each is held against the control at the width of its widest verify pass. That
    is read off the ledger: with a free first token it is K rows and not K + 1.
    """
    plain, outputs, widths = _answers(decoding, prompts, configurations, make_drafter)
    controls = {} if level is Level.L0 else _controls(decoding, plain, set(widths.values()))
    rescorer = Rescorer(decoding.verifier)
    return [
        judge(name, plain, own, rescorer, level=level, control=controls.get(widths[name]))
        for name, own in outputs.items()
    ]


def _answers(
    decoding: Decoding,
    prompts: Sequence[Prompt],
    configurations: Sequence[Configuration],
    make_drafter: Callable[[Configuration], Drafter],
) -> tuple[Outputs, dict[str, Outputs], dict[str, int]]:
    """Plain decoding's outputs; those of each configuration, and its widest verify pass."""
    with meter("audit", total=len(prompts) * (1 + len(configurations))) as progress:
        plain, _ = _decoded(decoding, Method(PLAIN), prompts, progress)
        script = {output.prompt: output.tokens for output in plain.values()}
        outputs, widths = {}, {}
        for c in configurations:
            if c.drafter in SCRIPTED:
                drafter = SCRIPTED[c.drafter](script, decoding.verifier.shape.vocab_size)
            else:
                drafter = make_drafter(c)
            method = Method(c.name, drafter, c.k, policy_named(c.policy, c.k))
            outputs[c.name], widths[c.name] = _decoded(decoding, method, prompts, progress)
    return plain, outputs, widths


def _decoded(
    decoding: Decoding, method: Method, prompts: Sequence[Prompt], progress: Meter
) -> tuple[Outputs, int]:
    """The method's outputs and the rows of its widest verify pass, 0 without one."""
    outputs, widest = {}, 0
    for prompt in prompts:
        completion, ledger = decoding.run(method, prompt)
        outputs[prompt.id] = of_completion(prompt, completion)
        widest = max([widest, *(p.rows for p in ledger.passes if p.phase is Phase.VERIFY)])
        progress.advance()
    return outputs, widest


def _controls(decoding: Decoding, plain: Outputs, widths: set[int]) -> dict[int, Control]:
    """The fixed-width control at each width; a pass of one row needs none."""
    walked = {name: (output.prompt, output.tokens) for name, output in plain.items()}
    wide = sorted(width for width in widths if width > 1)
    controls = {}
    with meter("control", total=len(wide)) as progress:
        for width in wide:
            controls[width] = fixed_width_control(decoding.verifier, walked, width)
            progress.advance()
    return controls


def inspect_records(
    decoding: Decoding, prompts: Sequence[Prompt], records: Iterable[Record], configs: Sequence[str]
) -> list[Audit]:
    """Audit the outputs that a benchmark kept (those of its first repeat), at level L2.

    The fixed-width control is left to ``breakeven audit``: it costs two more decodings.
    """
    by_id = {prompt.id: prompt for prompt in prompts}
    outputs: dict[str, Outputs] = {}
    for record in records:
        if record.token_ids is not None:
            output = of_record(by_id[record.id], record)
            outputs.setdefault(record.config, {})[record.id] = output
    rescorer = Rescorer(decoding.verifier)
    audits = []
    with meter("audit", total=len(configs)) as progress:
        for config in configs:
            audits.append(judge(config, outputs[PLAIN], outputs[config], rescorer))
            progress.advance()
    return audits


def of_completion(prompt: Prompt, completion: Completion) -> Output:
    """What an audit needs of a completion."""
    rounds: Sequence[Round] = completion.rounds
    return Output(
        id=prompt.id,
        prompt=tuple(prompt.prompt_ids),
        tokens=tuple(completion.tokens),
        finish=str(completion.finish),
        drafted=sum(r.drafted for r in rounds),
        accepted=sum(r.accepted for r in rounds),
    )


def of_record(prompt: Prompt, record: Record) -> Output:
    """What an audit needs of a benchmark's record."""
    assert record.token_ids is not None, "outputs are kept in repeat 0"
    return Output(
        id=prompt.id,
        prompt=tuple(prompt.prompt_ids),
        tokens=record.token_ids,
        finish=record.finish,
        drafted=record.drafted,
        accepted=record.accepted,
    )
