"""A made-up benchmark run with plausible figures: every file of docs/formats.md.

Look at the page it gives: ``python tests/fake_run.py /tmp/fake && breakeven report /tmp/fake``.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

CATEGORIES = ("chat", "code", "extraction", "maths", "reasoning", "writing")
STEP_S = 0.0243
WIDTHS = {1: 1.0, 2: 1.03, 3: 1.06, 4: 1.09, 5: 1.13, 6: 1.2, 8: 1.24, 12: 1.45, 17: 1.9, 33: 3.4}
KINDNESS = dict(zip(CATEGORIES, (1.0, 1.15, 1.3, 1.05, 0.9, 0.8), strict=True))


@dataclass(frozen=True)
class Fake:
    """One configuration: survival, cost of drafting and other time in plain steps."""

    drafter: str
    survival: tuple[float, ...]
    draft: float
    other: float = 0.04
    free: int = 0
    passes: str = "block"

    @property
    def k(self) -> int:
        return len(self.survival)

    @property
    def name(self) -> str:
        return f"{self.drafter}-k{self.k}"

    @property
    def rows(self) -> int:
        return self.k + 1 - self.free


FAKES = (
    Fake("ngram", (0.27, 0.16, 0.11), 0.002, passes="sequential"),
    Fake("peft-bd-gated", (1.0, 0.46, 0.19, 0.06), 1.13, free=1),
    Fake("fastmtp", (0.34, 0.11, 0.03), 0.42, passes="sequential"),
    Fake("peft-bd", tuple(0.62**k for k in range(1, 17)), 1.9),
    Fake("peft-bd-fused", (0.44, 0.18, 0.07, 0.02), 0.0, other=0.16),
)


def write_run(
    folder: Path,
    fakes: tuple[Fake, ...] = FAKES,
    *,
    prompts: int = 4,
    repeats: int = 3,
    seed: int = 7,
    near_tie: bool = True,
    **changes: Any,
) -> Path:
    """Write a run folder; ``changes`` override fields of ``configuration.json``."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    requests = [
        _request(rng, fake, repeat, category, i)
        for repeat in range(repeats)
        for category in CATEGORIES
        for i in range(prompts)
        for fake in (None, *fakes)
    ]
    _json(folder / "configuration.json", _configuration(fakes, prompts, repeats) | changes)
    (folder / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests))
    acceptance = [_acceptance(requests, f, c) for f in fakes for c in ("all", *CATEGORIES)]
    performance = [
        _performance(rng, requests, f, c) for f in (None, *fakes) for c in ("all", *CATEGORIES)
    ]
    _csv(folder / "acceptance.csv", acceptance)
    _csv(folder / "performance.csv", performance)
    _csv(folder / "cost_curve.csv", _curve(rng))
    _json(folder / "audit.json", [_audit(rng, f, near_tie and i == 1) for i, f in enumerate(fakes)])
    _json(folder / "verdict.json", _verdict(performance))
    (folder / "recipe.yaml").write_text("bench:\n  repeats: 3\n")
    return folder


def _request(
    rng: random.Random, fake: Fake | None, repeat: int, category: str, i: int
) -> dict[str, Any]:
    budget = 96 if i % 3 else 60
    step = STEP_S * rng.gauss(1, 0.012)
    base = {"config": fake.name if fake else "ar", "repeat": repeat, "id": f"{category}-{i:03d}"}
    base |= {"category": category, "prompt_tokens": 40 + 11 * i, "tokens": budget}
    base |= {"finish": "length" if i % 3 else "stop", "prefill_s": step * 2.1}
    rounds = drafted = accepted = committed = 0
    histogram: dict[int, int] = defaultdict(int)
    while committed < budget - 1:
        k = fake.k if fake else 0
        a = _accepted(rng, fake, KINDNESS[category]) if fake else 0
        histogram[a] += 1
        rounds, drafted, accepted = rounds + 1, drafted + k, accepted + a
        committed = min(budget - 1, committed + a + 1)
    draft_s = rounds * step * fake.draft if fake else 0.0
    verify_s = rounds * step * (WIDTHS[fake.rows] if fake else 0.97)
    other_s = rounds * step * (fake.other if fake else 0.03)
    base |= {"decode_s": draft_s + verify_s + other_s, "draft_s": draft_s, "verify_s": verify_s}
    base |= {"other_s": other_s, "rounds": rounds, "drafted": drafted, "accepted": accepted}
    counts = [histogram[a] for a in range((fake.k if fake else 0) + 1)]
    base |= {"committed": committed, "accepted_histogram": counts}
    base |= {"drafted_histogram": [0] * (len(counts) - 1) + [rounds]}
    if repeat == 0:
        base["token_ids"] = [rng.randrange(49152) for _ in range(budget)]
    return base


def _accepted(rng: random.Random, fake: Fake, kindness: float) -> int:
    before, accepted = 1.0, 0
    for s in fake.survival:
        if s < 1.0 and rng.random() > min(0.97, kindness * s / before):
            break
        before, accepted = s, accepted + 1
    return accepted


def _of(requests: list[dict[str, Any]], config: str, category: str) -> list[dict[str, Any]]:
    return [r for r in requests if r["config"] == config and category in ("all", r["category"])]


def _total(rows: list[dict[str, Any]], field: str) -> float:
    return sum(r[field] for r in rows)


def _acceptance(requests: list[dict[str, Any]], fake: Fake, category: str) -> dict[str, Any]:
    rows = _of(requests, fake.name, category)
    counts = [_total(rows, field) for field in ("rounds", "drafted", "accepted", "committed")]
    rounds, drafted, accepted, committed = counts
    entry: dict[str, Any] = {"config": fake.name, "category": category, "rounds": rounds}
    entry |= {"drafted": drafted, "accepted": accepted, "committed": committed}
    entry |= {"acceptance_length": committed / rounds, "acceptance_rate": accepted / drafted}
    for k in range(1, max(f.k for f in FAKES) + 1):
        alive = sum(sum(r["accepted_histogram"][k:]) for r in rows)
        entry[f"survival_{k}"] = alive / rounds if k <= fake.k else ""
        far = sum(sum(r["drafted_histogram"][k:]) for r in rows)
        entry[f"drafted_{k}"] = far / rounds if k <= fake.k else ""
    return entry


def _performance(
    rng: random.Random, requests: list[dict[str, Any]], fake: Fake | None, category: str
) -> dict[str, Any]:
    rows, plain = (_of(requests, name, category) for name in (fake.name if fake else "ar", "ar"))
    speed, base = (_total(r, "committed") / _total(r, "decode_s") for r in (rows, plain))
    rounds = _total(rows, "rounds")
    cost = [_total(rows, part) / rounds * base for part in ("draft_s", "verify_s", "other_s")]
    half = rng.uniform(0.012, 0.04) * (1 if category == "all" else 2.4)
    ratio = speed / base
    whole = [
        fmean(r["tokens"] / (r["decode_s"] + r["prefill_s"]) for r in x) for x in (rows, plain)
    ]
    entry: dict[str, Any] = {"config": fake.name if fake else "ar", "category": category}
    entry |= {"tokens_per_s": speed, "ratio": ratio, "ratio_low": ratio * (1 - half)}
    entry |= {"ratio_high": ratio * (1 + half), "end_to_end_ratio": whole[0] / whole[1]}
    entry |= dict(zip(("c_d", "c_v", "c_s"), cost, strict=True))
    return entry | {
        "break_even": sum(cost),
        "acceptance_length": _total(rows, "committed") / rounds,
    }


def _curve(rng: random.Random) -> list[dict[str, Any]]:
    rows = []
    for context in (64, 512):
        for width, relative in WIDTHS.items():
            seconds = STEP_S * (relative + context / 9000) * rng.gauss(1, 0.008)
            spread = {"low": seconds * 0.985, "high": seconds * 1.02}
            entry = {"rows": width, "context": context, "seconds": seconds, **spread}
            rows.append(entry | {"relative": relative})
    return rows


def _audit(rng: random.Random, fake: Fake, near_tie: bool) -> dict[str, Any]:
    found = {"id": "maths-002", "position": 41, "expected": 314, "got": 2717, "gap": 3.1e-6}
    found |= {"expected_text": " is", "got_text": " equals", "context": "so the sum of 3 and 4"}
    edges = [0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    counts = [1, 2, 9, 41, 166, 540, 611, 702, 1001, 866, 305]
    return {
        "config": fake.name, "level": "L2", "verdict": "near-tie" if near_tie else "equal",
        "requests": 24, "tokens": 2016, "drafted": 3100 + rng.randrange(300),
        "divergences": [found | {"class": "near-tie"}] if near_tie else [],
        "margins": {"edges": edges, "counts": counts},
    }  # fmt: skip


def _verdict(performance: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [p for p in performance if p["category"] == "all" and p["config"] != "ar"]
    best = max(rows, key=lambda p: p["ratio"])
    ratio, low, high = best["ratio"], best["ratio_low"], best["ratio_high"]
    says = "pays" if low > 1 else "does not pay" if high < 1 else "undecided"
    return {
        "verdict": says, "best": best["config"], "ratio": ratio, "ratio_low": low,
        "ratio_high": high,
        "sentence": f"It {says}: {best['config']} is {100 * (ratio - 1):.0f} % faster than plain"
        " decoding of smollm2-135m on this machine (AMD EPYC 7763 64-Core Processor, 2 threads),"
        f" with 95 % confidence between {100 * (low - 1):.0f} % and {100 * (high - 1):.0f} %"
        " faster, and its answers are the same.",
        "reasons": [
            f"{p['config']} commits {p['acceptance_length']:.2f} tokens a round and a round costs"
            f" {p['break_even']:.2f} plain steps."
            for p in rows
        ],
    }  # fmt: skip


def _configuration(fakes: tuple[Fake, ...], prompts: int, repeats: int) -> dict[str, Any]:
    machine = {"cpu": "AMD EPYC 7763 64-Core Processor", "cores": 2, "threads": 2, "gpu": None}
    machine |= {"load_1m_start": 0.4, "load_1m_end": 2.1, "torch": "2.13.0", "python": "3.11.7"}
    listed = [
        {"name": f.name, "drafter": f.drafter, "k": f.k, "free": f.free, "passes": f.passes}
        for f in fakes
    ]
    return {
        "kind": "bench", "breakeven": "0.1.0", "verifier": {"name": "smollm2-135m",
        "weights_sha256": "5af1" * 16}, "artifact": "assets/smollm2-135m", "split": "test",
        "command": "breakeven bench --artifact assets/smollm2-135m --out runs/demo",
        "prompts": prompts * len(CATEGORIES), "categories": list(CATEGORIES), "repeats": repeats,
        "max_new_tokens": 96, "mode": "eager", "machine": machine,
        "configurations": [{"name": "ar", "drafter": None, "k": 0}, *listed],
        "definitions": {},
    }  # fmt: skip


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def _csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write_run(Path(sys.argv[1]))
