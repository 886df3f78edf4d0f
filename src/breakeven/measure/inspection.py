"""Run an exactness audit: decode plainly, decode with each drafter, judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from breakeven.core import Round
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
from breakeven.progress import meter

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
    """Audit every configuration on ``prompts``; names in :data:`SCRIPTED` need no weights."""
    trials = len(prompts) * (1 + len(configurations))
    widths = sorted({c.k + 1 for c in configurations}) if level is not Level.L0 else []
    rescorer = Rescorer(decoding.verifier)
    audits = []
    with meter("audit", total=trials + len(prompts) * len(widths)) as progress:

        def answers(method: Method) -> dict[str, Output]:
            outputs = {}
            for prompt in prompts:
                outputs[prompt.id] = of_completion(prompt, decoding.run(method, prompt)[0])
                progress.advance()
            return outputs

        plain = answers(Method(PLAIN))
        controls: dict[int, Control] = {}
        for width in widths:
            walked = {name: (output.prompt, output.tokens) for name, output in plain.items()}
            controls[width] = fixed_width_control(decoding.verifier, walked, width)
            progress.advance(len(prompts))
        script = {output.prompt: output.tokens for output in plain.values()}
        for c in configurations:
            if c.drafter in SCRIPTED:
                drafter = SCRIPTED[c.drafter](script, decoding.verifier.shape.vocab_size)
            else:
                drafter = make_drafter(c)
            own = answers(Method(c.name, drafter, c.k))
            control = controls.get(c.k + 1)
            audits.append(judge(c.name, plain, own, rescorer, level=level, control=control))
    return audits


def inspect_records(
    decoding: Decoding, prompts: Sequence[Prompt], records: Iterable[Record], configs: Sequence[str]
) -> list[Audit]:
    """Audit the outputs that a benchmark kept (those of its first repeat), at level L2.

    The fixed-width control is left to ``breakeven audit``: it costs two more decodings.
    """
    by_id = {prompt.id: prompt for prompt in prompts}
    outputs: dict[str, dict[str, Output]] = {}
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
