"""``breakeven generate``: answer prompts and show what each answer cost."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.options import (
    BUNDLED,
    BatchSize,
    CacheMemory,
    Device,
    DrafterOptions,
    DraftTokens,
    Dtype,
    Json,
    MaxNewTokens,
    Mode,
    ModelName,
    Prices,
    Threads,
    Weights,
)
from breakeven.counting import counted
from breakeven.errors import DataError

if TYPE_CHECKING:
    from breakeven.cost.calibration import Calibration
    from breakeven.data.prompt import Prompt
    from breakeven.decode.request import Completion, Request
    from breakeven.drafters.base import Drafter
    from breakeven.verifier.load import Loaded

Texts = Annotated[
    list[str] | None, typer.Argument(metavar="PROMPT", help="What to ask; `-` reads stdin.")
]
PromptFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="A JSONL file of prompts instead (or as well)."),
]
DrafterNames = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        "-d",
        metavar="NAME[=DIR]",
        help="Decode speculatively with this drafter: `ngram`, `suffix`, `quantized`, `hybrid` or "
        "another of docs/drafters.md; for one you trained, also its folder.",
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="`fixed`: always K tokens; `confidence`: fewer where the drafter doubts itself; "
        "`adaptive`: 0 to K, as measured prices and acceptance advise.",
    ),
]
Stops = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End an answer before this text.")
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Also decode plainly, and say whether the tokens agree.")
]
Colour = Annotated[
    bool,
    typer.Option(
        "--show-drafts",
        help="Colour the tokens that the drafter proposed; in a file they stand in « ».",
    ),
]


def generate(
    prompt: Texts = None,
    file: PromptFile = None,
    model: ModelName = BUNDLED,
    drafter: DrafterNames = None,
    drafter_option: DrafterOptions = None,
    k: DraftTokens = None,
    policy: PolicyName = "fixed",
    calibration: Prices = None,
    max_new_tokens: MaxNewTokens = 256,
    stop: Stops = None,
    batch: BatchSize = 1,
    cache_mb: CacheMemory = None,
    raw: Raw = False,
    compare: Compare = False,
    show_drafts: Colour = False,
    threads: Threads = None,
    device: Device = "cpu",
    mode: Mode = None,
    dtype: Dtype = None,
    weights: Weights = None,
    as_json: Json = False,
) -> None:
    """Answer prompts greedily, with or without a drafter, and show the account of each answer.

    The text is the verifier's own whatever is drafted. The account says how many rounds it took
    and the acceptance length: tokens committed per verify pass, the bonus token included.

    Examples:

        breakeven generate "Why is the sky blue?"
        breakeven generate "Say it twice: red lorry" --drafter ngram --show-drafts
        breakeven generate "Why is the sky blue?" --weights int8
        breakeven generate --file prompts.jsonl -d suffix --policy adaptive --json
        breakeven generate "Say it again." -d ngram --drafter-option longest=5
    """
    from breakeven.decode.generate import generate as decode
    from breakeven.decode.policy.named import policy_named
    from breakeven.verifier.load import load_verifier
    from breakeven.verifier.precision import dtype_named

    kind = None if dtype is None else dtype_named(dtype)
    texts = asked_for(prompt or [], file, stop or [])
    drafting = chosen(drafter or [], drafter_option or [], policy, calibration)
    loaded = load_verifier(
        model, threads=threads, device=device, dtype=kind, weights=weights, mode=mode
    )
    asked = list(requests(loaded, texts, max_new_tokens, tuple(stop or ()), raw))
    helper, prices = drafting(loaded, k != 0)
    lengths = policy_named(policy, k or None, prices)
    memory = None if cache_mb is None or isinf(cache_mb * 1e6) else int(cache_mb * 1e6)
    show_cache(loaded, asked, batch, helper, lengths.longest, memory)
    run = partial(
        decode, loaded.verifier, batch=batch, tokenizer=loaded.tokenizer, cache_bytes=memory
    )
    for group in [asked] if batch > 1 else [[request] for request in asked]:
        expected = {c.id: c.tokens for c in run(group)} if compare else {}
        for answer in run(group, drafter=helper, policy=lengths):
            report(answer, loaded, expected, show_drafts, as_json)


def show_cache(
    loaded: Loaded,
    asked: list[Request],
    batch: int,
    drafter: Drafter | None,
    k: int,
    memory: int | None,
) -> None:
    """Say what keys and values of a batch will take; a single request's are no matter."""
    from breakeven.decode.budget import plan_cache

    if batch == 1:
        return
    plan = plan_cache(loaded.verifier, asked, batch=batch, drafter=drafter, k=k, limit=memory)
    print(f"keys and values: {plan}", file=sys.stderr)


def asked_for(texts: list[str], file: Path | None, stop: list[str]) -> list[Prompt]:
    """The prompts of the command line, then those of the file; what is wrong with them, now."""
    from breakeven.data.prompt import Tally
    from breakeven.data.sources.jsonl import Jsonl, JsonlSettings

    prompts = list(typed(texts))
    if file is not None:
        tally = Tally("jsonl")
        prompts += Jsonl(JsonlSettings(paths=(str(file),))).prompts(tally)
        for reason, count in tally.dropped.items():
            print(f"note: {counted(count, 'line')} of {file} skipped: {reason}", file=sys.stderr)
    if not prompts:
        raise DataError('no prompt given; write breakeven generate "Why is the sky blue?"')
    if "" in stop:
        raise DataError("--stop is empty; give the text before which an answer ends")
    return prompts


def requests(
    loaded: Loaded, prompts: list[Prompt], max_new_tokens: int, stop: tuple[str, ...], raw: bool
) -> Iterator[Request]:
    """The prompts as token ids."""
    from breakeven.data.render import Renderer
    from breakeven.decode.request import Request

    renderer = Renderer(loaded.tokenizer)
    for prompt in prompts:
        if raw:
            ids = tuple(loaded.tokenizer(prompt.text)["input_ids"])
        else:
            ids = renderer.ids(prompt.messages)
        yield Request(prompt.id, ids, max_new_tokens, loaded.eos, stop)


def typed(texts: list[str]) -> Iterator[Prompt]:
    """The prompts of the command line; ``-`` is what comes on standard input."""
    from breakeven.data.prompt import Message, Prompt, is_text

    for number, text in enumerate(texts, start=1):
        content = sys.stdin.read() if text == "-" else text
        if not content.strip():
            raise DataError(f"prompt {number} is empty; give some text")
        if not is_text(content):
            raise DataError(f"prompt {number} is not Unicode text; give it as UTF-8")
        yield Prompt(str(number), "typed", (Message("user", content),))


def chosen(
    texts: list[str], options: list[str], policy: str, calibration: Path | None
) -> Callable[[Loaded, bool], tuple[Drafter | None, Calibration | None]]:
    """The drafter named ``NAME`` or ``NAME=DIR``, if any, and the prices, once there is a model.

    What can be wrong without one is told now. The second argument of the result: whether anything
    is to be drafted.
    """
    from breakeven.cost.calibration import Calibration
    from breakeven.drafters.registry import check, create
    from breakeven.measure.calibration.prices import prices_for, unread
    from breakeven.measure.configuration import shared_options
    from breakeven.measure.doubts import warn

    if options and not texts:
        raise DataError("--drafter-option without a drafter; give one: --drafter NAME")
    if len(texts) > 1:
        raise DataError(
            f"--drafter is given {len(texts)} times: give one; breakeven bench compares several"
        )
    if calibration is not None:
        Calibration.read(calibration)
    name, equals, folder = texts[0].partition("=") if texts else ("", "", "")
    path = folder if equals else None
    own = shared_options(options, [name])[name] if texts else {}
    if texts:
        check(name, path, own)

    def drafting(loaded: Loaded, drafts: bool) -> tuple[Drafter | None, Calibration | None]:
        drafter = create(name, loaded, path, **own) if texts and drafts else None
        if calibration is None:
            return drafter, None
        warn(unread(calibration, [] if drafter is None else [policy]))
        return drafter, prices_for(loaded, calibration)

    return drafting


def report(
    answer: Completion,
    loaded: Loaded,
    expected: dict[str, list[int]],
    show_drafts: bool,
    as_json: bool,
) -> None:
    """Print one answer with its account."""
    if as_json:
        print(json.dumps(row(answer, expected)))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    text = coloured(answer, loaded.tokenizer) if show_drafts else Text(answer.text or "")
    console.print(text if console.is_terminal else marked(text), markup=False)
    print(f"[{account(answer, expected)}]", file=sys.stderr)


def row(answer: Completion, expected: dict[str, list[int]]) -> dict[str, Any]:
    """One answer for machines."""
    found: dict[str, Any] = {
        "id": answer.id,
        "text": answer.text,
        "tokens": len(answer.tokens),
        "finish": answer.finish.value,
        "prefill_s": round(answer.prefill_s, 4),
        "decode_s": round(answer.decode_s, 4),
        "rounds": len(answer.rounds),
        "drafted": sum(r.drafted for r in answer.rounds),
        "accepted": sum(r.accepted for r in answer.rounds),
        "committed": sum(r.committed for r in answer.rounds),
        "acceptance_length": acceptance_length(answer),
        "choices": choices(answer),
    }
    if expected:
        found["equals_plain"] = answer.tokens == expected[answer.id]
    return found


def acceptance_length(answer: Completion) -> float | None:
    """Tokens committed per verify pass, bonus included; None without rounds."""
    if not answer.rounds:
        return None
    return round(sum(r.committed for r in answer.rounds) / len(answer.rounds), 3)


def choices(answer: Completion) -> dict[str, int]:
    """How many rounds the policy chose for each reason: the state of it on this answer."""
    return dict(Counter(r.choice.reason.value for r in answer.rounds if r.choice is not None))


def account(answer: Completion, expected: dict[str, list[int]]) -> str:
    """One line: size, time, rounds, acceptance; its numbers can be computed from each other."""
    made = len(answer.tokens) - 1  # the first token is the prefill's
    rate = made / answer.decode_s if answer.decode_s > 0 and made else 0.0
    size = counted(len(answer.tokens), "token")
    words = [f"{size}, finish: {answer.finish.value}", f"{rate:.1f} tokens/s after the first"]
    length = acceptance_length(answer)
    if length is not None:
        committed = sum(r.committed for r in answer.rounds)
        words.append(
            f"1 token from the prompt's pass, {committed:,} from "
            f"{counted(len(answer.rounds), 'round')}: {length:.2f} tokens per verify pass"
        )
        made_for = choices(answer)
        if made_for.keys() - {"fixed"}:
            words.append(", ".join(f"{reason} {count}" for reason, count in made_for.items()))
    if expected:
        same = answer.tokens == expected[answer.id]
        words.append(
            "equal to plain decoding" if same else "not equal to plain decoding: run audit"
        )
    return "; ".join(words)


def marked(text: Any) -> str:
    """Text in which what would be coloured stands in « », for where there are no colours.

    >>> from rich.text import Text
    >>> marked(Text.assemble("a ", ("red", "green"), (" lorry", "green"), " b"))
    'a «red lorry» b'
    """
    drafted = [False] * len(text.plain)
    for span in text.spans:
        drafted[span.start : span.end] = [bool(span.style)] * (span.end - span.start)
    runs = groupby(zip(drafted, text.plain, strict=True), key=lambda pair: pair[0])
    parts = ((own, "".join(letter for _, letter in run)) for own, run in runs)
    return "".join(f"«{part}»" if own else part for own, part in parts)


def coloured(answer: Completion, tokenizer: Any) -> Any:
    """The text, with drafted and accepted tokens in colour.

    A letter of several tokens is shown once it is whole, in the colour of the last.
    """
    from rich.text import Text

    drafted = [False]  # the first token comes from the prefill
    for r in answer.rounds:
        drafted += [i < r.accepted for i in range(r.committed)]
    whole = answer.text or ""
    text, shown = Text(), 0
    for count in range(1, len(answer.tokens) + 1):
        now = tokenizer.decode(answer.tokens[:count], skip_special_tokens=True)
        end = len(now.rstrip("\ufffd")) if count < len(answer.tokens) else len(whole)
        if end > shown:
            text.append(whole[shown:end], style="green" if drafted[count - 1] else "")
            shown = end
    return text
