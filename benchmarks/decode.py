"""One request at a time: plain decoding, ngram and trained drafters, interleaved.

    python -m benchmarks.decode --json decode.json
    python -m benchmarks.decode --drafter peft-bd-gated=runs/gated --k 2 4

Ratios are of seconds a token within one prompt, median over prompts and repeats.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.command import positive, start
from benchmarks.conditions import Report, Target, goals, number, parser
from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import load_artifact
from breakeven.decode.policy.named import policy_named
from breakeven.drafters.registry import create
from breakeven.measure.configuration import PLAIN, parse_drafter
from breakeven.measure.neighbours import busy_now
from breakeven.measure.prompts import Prompt, choose
from breakeven.measure.schedule import interleaved
from breakeven.measure.trial import Decoding, Method, quiet_collector, warm_up
from breakeven.progress import meter
from breakeven.verifier.load import Loaded, load_verifier

OVERHEAD_TARGET = 0.04
"""Time outside passes (c_s), in plain steps."""

DEFINITIONS = {
    "tokens/s": "decode time only: new tokens after the first ÷ seconds after the prefill",
    "ratio": "seconds a token of plain ÷ those of the method, same prompt and repeat; median",
    "c_s": "seconds outside all passes per verify pass (plain: per step) ÷ seconds of a plain step",
    "acceptance_length": "tokens committed per verify pass, bonus included",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: seconds after its prefill, split into passes and the rest."""

    method: str
    repeat: int
    prompt: str
    tokens: int  # after the first
    seconds: float
    steps: int  # verify passes or plain steps
    other_s: float
    plain_step_s: float  # 0 for speculative methods

    @property
    def per_token(self) -> float:
        """Seconds."""
        return self.seconds / max(1, self.tokens)


def sample(decoding: Decoding, method: Method, repeat: int, prompt: Prompt) -> Sample:
    """Decode one prompt."""
    answer, ledger = decoding.run(method, prompt)
    steps = ledger.count(Phase.PLAIN) + ledger.count(Phase.VERIFY)
    plain = ledger.count(Phase.PLAIN)
    return Sample(
        method=method.name,
        repeat=repeat,
        prompt=prompt.id,
        tokens=len(answer.tokens) - 1,
        seconds=answer.decode_s,
        steps=steps,
        other_s=_outside(ledger, answer.decode_s),
        plain_step_s=ledger.seconds(Phase.PLAIN) / plain if plain else 0.0,
    )


def _outside(ledger: Ledger, decode_s: float) -> float:
    """Seconds after the prefill that are in no pass."""
    inside = sum(p.seconds for p in ledger.passes if p.phase is not Phase.PREFILL)
    return max(0.0, decode_s - inside)


def measure(
    decoding: Decoding, methods: Mapping[str, Method], prompts: Sequence[Prompt], repeats: int
) -> list[Sample]:
    """Every method on every prompt, in an order drawn anew; warm-up does not count."""
    warm_up(decoding, list(methods.values()), prompts[0])
    order = list(interleaved(list(methods), len(prompts), repeats, 0))
    found = []
    with quiet_collector(), meter("decode", len(order)) as progress:
        for repeat, index, name in order:
            found.append(sample(decoding, methods[name], repeat, prompts[index]))
            progress.advance()
    return found


@dataclass(frozen=True, slots=True)
class Standing:
    """One line of the table."""

    method: str
    rate: float  # tokens a second
    ratio: float  # to plain
    overhead: float  # c_s
    acceptance_length: float


def standings(samples: Sequence[Sample]) -> list[Standing]:
    """Every method against plain decoding."""
    plain = {(s.repeat, s.prompt): s for s in samples if s.method == PLAIN and s.tokens}
    step = median(s.plain_step_s for s in plain.values())
    found = []
    for name in dict.fromkeys(s.method for s in samples):
        own = [s for s in samples if s.method == name and (s.repeat, s.prompt) in plain]
        found.append(
            Standing(
                method=name,
                rate=1 / median(s.per_token for s in own),
                ratio=median(plain[s.repeat, s.prompt].per_token / s.per_token for s in own),
                overhead=median(s.other_s / max(1, s.steps) for s in own) / step,
                acceptance_length=sum(s.tokens for s in own) / sum(s.steps for s in own),
            )
        )
    return found


def targets(found: Sequence[Standing]) -> list[Target]:
    """Time outside passes, of every method."""
    return [
        Target(f"c_s of {s.method}", s.overhead, OVERHEAD_TARGET, at_least=False) for s in found
    ]


def table(found: Sequence[Standing]) -> Table:
    """A line a method."""
    shown = Table("method", title="one request at a time")
    for column in ("tokens/s", "× plain", "tokens a pass", "c_s"):
        shown.add_column(column, justify="right")
    for s in found:
        shown.add_row(
            s.method,
            f"{s.rate:.1f}",
            f"{s.ratio:.2f}",
            f"{s.acceptance_length:.2f}",
            number(s.overhead),
        )
    return shown


def methods_for(loaded: Loaded, drafters: Sequence[str], lengths: Sequence[int]) -> list[Method]:
    """Plain decoding, and every drafter (``NAME`` or ``NAME=DIR``) with every draft length.

    Each also runs with the adaptive policy, which chooses K in every round.
    """
    made = [Method()]
    for text in drafters:
        name, path = parse_drafter(text)
        drafter = create(name, loaded, path)
        made += [Method(f"{name} k={k}", drafter, k) for k in lengths]
        policy = policy_named("adaptive")
        made.append(Method(f"{name} adaptive", drafter, policy.longest, policy))
    return made


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    made = parser(__doc__ or "", tokens=96)
    made.add_argument("--prompts", type=positive, default=6)
    made.add_argument("--repeats", type=positive, default=2)
    made.add_argument("--drafter", action="append", default=[], metavar="NAME=DIR")
    made.add_argument("--k", type=positive, nargs="+", default=[3], help="draft tokens a round")
    return made.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write the JSON."""
    options = parse(arguments)
    loaded = load_verifier(options.model, threads=options.threads)
    rows = load_artifact(options.artifact, loaded.identity).rows("test")
    prompts = choose(rows, options.prompts, options.seed)
    report = Report(options, busy_now())
    decoding = Decoding(loaded.verifier, loaded.eos, options.tokens)
    methods = {m.name: m for m in methods_for(loaded, ["ngram", *options.drafter], options.k)}
    samples = measure(decoding, methods, prompts, options.repeats)
    found = standings(samples)
    Console().print(table(found), goals(targets(found)))
    report.write(DEFINITIONS, targets(found), standings=found, samples=samples)


if __name__ == "__main__":
    start(main)
