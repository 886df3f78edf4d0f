"""The tables of what passes cost: Table 3, the oracle, algorithm against implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from breakeven.cost.oracle import PAPER
from breakeven.paper import settings as differs
from breakeven.paper.published import PUBLISHED
from breakeven.paper.reading import PAPER_SPLIT, oracle_of, row_of, split_of
from breakeven.paper.table import Results, Table, ms, ratio, text


def profile(verifier: str, results: Results) -> Table | None:
    """Table 3: call counts and latencies."""
    result = results.get("profile")
    if result is None:
        return None
    here = differs.model(verifier)
    draft, verify, plain = (result[key] for key in ("draft", "verify", "plain"))
    rows = (
        ("prompts", str(PUBLISHED.profile_prompts), str(result["prompts"]), here),
        ("draft forwards", f"{PUBLISHED.profile_passes:,}", f"{draft['calls']:,}", here),
        ("verify forwards", f"{PUBLISHED.profile_passes:,}", f"{verify['calls']:,}", here),
        (
            "mean draft latency, ms", text(1e3 * PAPER.draft_forward_s), ms(draft["mean_s"]),
            differs.joined(here, f"{text(draft['mean_rows'], 1)} rows a pass here"),
        ),
        (
            "mean verify latency, ms", text(1e3 * PAPER.verify_forward_s), ms(verify["mean_s"]),
            differs.joined(here, f"{text(verify['mean_rows'], 1)} rows a pass here"),
        ),
        ("plain step, ms", text(1e3 / PAPER.plain), ms(plain["mean_s"]), here),
        (
            "verify pass / plain step", text(PAPER.verify_forward_s * PAPER.plain, 1),
            text(ratio(verify["mean_s"], plain["mean_s"]), 2),
            "the paper's pass is eager and profiled, its plain step has CUDA graphs",
        ),
        ("committed a round", text(PAPER.peft_bd_committed), text(result["committed"]), here),
    )  # fmt: skip
    caption = (
        "Passes of PEFT-BD over these prompts, prefill left out. Our ledger times every pass where "
        "it is made; the paper's profiler adds time of its own (100.9 ms a round for 84.6 ms in "
        "its benchmark)."
    )
    columns = ("quantity", "paper", "here", "what differs")
    return Table("table3", "Table 3. Profile of PEFT-BD", columns, rows, caption)


def oracle(verifier: str, results: Results) -> Table | None:
    """The paper's oracle and ours beside it: drafting free, verify at plain-step price."""
    result = results.get("bench")
    row = row_of(result, "peft-bd") if result else None
    ours = oracle_of(row) if row else None
    if result is None or ours is None:
        return None
    theirs, mtp = PAPER.oracle(), row_of(result, "fastmtp")
    here = differs.joined(differs.model(verifier), differs.machine(result["machine"]))
    rows = [
        ("round T0, ms", text(1e3 * theirs.time.total, 1), ms(ours.time.total), here),
        ("share of drafting, rho_d", text(theirs.time.rho_d), text(ours.time.rho_d), here),
        ("share of verifying", text(theirs.time.rho_v), text(ours.time.rho_v), here),
        ("share of the rest", text(theirs.time.rho_s), text(ours.time.rho_s), here),
        (
            "drafting free (r = 1), tok/s (times plain)",
            f"{theirs.throughput(1):.2f} ({theirs.throughput(1) / theirs.plain:.2f})",
            f"{ours.throughput(1):.2f} ({ours.throughput(1) / ours.plain:.2f})",
            here,
        ),
    ]
    targets = [("plain decoding", PAPER.plain, ours.plain)]
    if mtp:
        targets.insert(0, ("FastMTP", PAPER.fastmtp, mtp["speed"]["mean"]))
    rows += [
        (
            f"A* to match {name} at r = {r}",
            text(theirs.required(published, r), 2),
            text(ours.required(measured, r), 2),
            here,
        )
        for name, published, measured in targets
        for r in (0, 1)
    ]
    both = theirs.at_plain_price(1), ours.at_plain_price(1)
    rows.append(
        (
            "both passes at plain-step price, tok/s (times plain)",
            f"{both[0]:.0f} ({both[0] / theirs.plain:.2f})",
            f"{both[1]:.1f} ({both[1] / ours.plain:.2f})",
            here,
        )
    )
    caption = (
        "r is the share of drafting time taken away; A* the tokens a round that the target's speed "
        "then needs. A* says nothing without its r: the paper's 8 and 18.3 belong to r = 1. The "
        "last line keeps the acceptance and prices every pass like one plain step: an upper bound, "
        "since a pass of 17 rows costs more than one of one row."
    )
    columns = ("quantity", "paper", "here", "what differs")
    return Table("oracle", "Oracle", columns, tuple(rows), caption)


def parts(verifier: str, results: Results) -> Table | None:
    """Algorithm against implementation, for every path that was measured."""
    found: list[tuple[str, Any, str]] = [("paper, engine", PAPER_SPLIT, "")]
    sources: Sequence[tuple[str, Mapping[str, Any] | None]] = (
        ("here, engine", results.get("bench")),
        *(
            (f"here, {path} (loop's prompts)", results["loop"]["paths"][path])
            for path in (("loop", "engine") if "loop" in results else ())
        ),
    )
    for name, result in sources:
        row = row_of(result, "peft-bd") if result else None
        if row:
            found.append((name, split_of(row), differs.model(verifier)))
    rows = tuple(
        (
            name,
            text(s.committed),
            text(s.price, 2),
            text(s.algorithm, 2),
            text(s.implementation),
            text(s.ratio),
            s.verdict,
            note,
        )
        for name, s, note in found
    )
    columns = (
        "PEFT-BD", "committed A", "price of a round, plain steps", "algorithm A / 2",
        "implementation 2 / price", "ratio = product", "what decides", "what differs",
    )  # fmt: skip
    caption = (
        "Speed over plain decoding's, split in two factors: what two passes a round are worth "
        "where each costs one plain step, and what their real price leaves of it."
    )
    title = "Algorithm against implementation"
    return Table("parts", title, columns, rows, caption) if len(rows) > 1 else None
