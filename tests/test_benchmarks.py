"""The benchmark scripts run and add up; what they measure is not asserted."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rich.console import Console

from breakeven.core import Draft
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import write_artifact
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.ngram import NGram
from breakeven.drafters.registry import create
from breakeven.errors import DataError
from breakeven.measure.configuration import Configuration
from breakeven.measure.description import Plan
from breakeven.measure.trial import Method
from breakeven.train.peft_bd import PeftBdObjective
from breakeven.train.randomness import generator_of
from breakeven.verifier.decoder import LeanVerifier, tensor_sizes
from measuring import decoding, prompts
from simulated import CURVE
from test_artifact import contract
from tiny import tiny_config, tiny_verifier
from tiny_chat import tiny_loaded
from training import objective_of, own_rows, shaken


def script(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # scripts import their neighbours
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_cost_curve_times_every_width_on_every_path() -> None:
    module = script("cost_curve")
    module.CALM_S = 0.0
    models = {
        name: LeanVerifier.from_config(
            tiny_config(), native=backend == "native", int8=weights == "int8"
        )
        for name, (backend, weights) in module.PATHS.items()
    }
    paths = {name: module.Timed.prepare(model, 10, 4) for name, model in models.items()}
    read = module.Read(1000)
    samples = module.measure(paths, [1, 4], read, rounds=2)
    assert {name: {w: len(t) for w, t in s.items()} for name, s in samples.items()} == {
        "native": {1: 2, 4: 2},
        "torch": {1: 2, 4: 2},
        "int8": {1: 2, 4: 2},
        "draft": {1: 2, 4: 2},
    }
    assert len(read.samples) == 2
    console = Console(width=100, record=True)
    console.print(
        module.table(
            {
                "native": {1: [0.010, 0.020], 4: [0.011, 0.022]},
                "int8": {1: [0.004, 0.008], 4: [0.006, 0.012]},
            },
            [0.008, 0.016],
            {"native": 1.0, "int8": 0.25},
        )
    )
    text = console.export_text()
    assert "15.0" in text  # ms, the median of 10 and 20
    assert "1.10" in text  # C(4) / C(1)
    assert "1.15" in text  # its target
    assert "1.25" in text  # a step in times of reading the weights
    assert "2.00" in text  # the same of int8, which reads a quarter


def test_weight_bytes_are_those_a_plain_step_reads() -> None:
    module = script("cost_curve")
    tied = LeanVerifier.from_config(tiny_config(), dtype=torch.float64)
    untied = LeanVerifier.from_config(tiny_config(tie_word_embeddings=False), dtype=torch.float64)
    assert module.weight_bytes(tied.architecture) == module.weight_bytes(untied.architecture)
    a = tied.architecture
    matrices = [s for s in tensor_sizes(a).values() if len(s) == 2]
    saved = sum(3 * rows * inputs - 4 * rows * -(-inputs // 64) for rows, inputs in matrices)
    assert module.weight_bytes(a) - module.weight_bytes(a, int8=True) == saved


def test_the_learning_curve_reads_what_training_wrote(tmp_path: Path) -> None:
    module = script("learning_curve")
    folder = tmp_path / "run" / "training"
    folder.mkdir(parents=True)
    lines = [
        {"step": 5, "split": "train", "tokens": 900},
        {
            "step": 6,
            "split": "validation",
            "real_acceptance_length": 1.25,
            "simulated_acceptance_length": 1.5,
            "real_survival": [0.2, 0.05],
        },
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    chart, data = tmp_path / "curve.svg", tmp_path / "curve.json"
    module.main([f"mine={tmp_path / 'run'}", "--svg", str(chart), "--json", str(data)])
    [point] = json.loads(data.read_text())
    assert (point["run"], point["tokens"], point["acceptance_length"]) == ("mine", 900, 1.25)
    assert point["simulated"] == 1.5
    assert "<svg" in chart.read_text()
    with pytest.raises(DataError, match="no evaluation yet"):
        module.main([str(tmp_path)])


def test_a_spoiled_drafter_is_always_wrong_but_for_its_free_token() -> None:
    module = script("policies")

    class Right(Drafter):
        free = 1

        def propose(self, context: Context, k: int) -> list[Draft]:
            return [Draft((5, 6, 63), free=1)]

    spoiled = module.Spoiled(Right(), vocab_size=64)
    verifier = tiny_verifier()
    context = Context(verifier, [[1]], verifier.new_cache(1, 1), Ledger())
    assert spoiled.glimpse(context, 3) is None
    assert spoiled.propose(context, 3) == [Draft((5, 7, 0), free=1)]


def test_the_policies_are_measured_on_every_prompt() -> None:
    module = script("policies")
    methods = [Method(), Method("ngram-adaptive", NGram(), 4, Adaptive(4, CURVE))]
    rows = prompts(6)
    found = module.measure(decoding(), methods, rows, 0, "tiny")
    everything = {p.config: p.prompts for p in found if p.category == "all"}
    assert everything == {"ar": 6, "ngram-adaptive": 6}
    console = Console(width=120, record=True)
    console.print(module.table({module.HELD_OUT: found, module.COPY: found}))
    text = console.export_text()
    assert "ngram-adaptive" in text
    assert "2.00" in text  # the target of copy-heavy prompts


@pytest.mark.parametrize("soft", [0.0, 1.0])
def test_the_naive_two_stream_pass_has_the_same_loss_and_gradients(soft: float) -> None:
    """In float64; the clean stream is kept in the verifier's own precision here."""
    module = script("training")
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    ours = shaken(objective_of("peft-bd-gated", verifier, rows, soft=soft))
    assert isinstance(ours, PeftBdObjective)
    stream = module.NoStream(verifier, with_keys=True)
    naive = module.TwoStreams(verifier, ours._settings, stream)
    naive.load_state_dict(ours.state_dict())
    losses = []
    for objective in (ours, naive):
        loss = objective(rows, generator_of(0, 0)).loss
        loss.backward()
        losses.append(float(loss.detach()))
    assert abs(losses[0] - losses[1]) < 1e-12
    for (name, one), two in zip(ours.named_parameters(), naive.parameters(), strict=True):
        assert one.grad is not None
        assert two.grad is not None
        assert one.grad.abs().sum() > 0, name
        assert torch.allclose(one.grad, two.grad, atol=1e-12), name


def test_the_training_benchmark_times_every_way(tmp_path: Path) -> None:
    module = script("training")
    verifier = tiny_verifier(dtype=torch.float32)
    rows = own_rows(verifier, 2)
    settings = module.GatedSettings(masks=3, anchors=4, causal=True)
    ways = {w: module.objective_of(w, verifier, settings, tmp_path) for w in module.WAYS}
    seconds = module.measure(ways, rows, rounds=2)
    assert {way: len(times) for way, times in seconds.items()} == dict.fromkeys(module.WAYS, 2)
    assert list(tmp_path.glob("*.safetensors"))
    console = Console(width=100, record=True)
    console.print(module.table({"naive": [0.2, 0.4], "in memory": [0.1, 0.2]}, {"naive": 900.0}))
    text = console.export_text()
    assert "2.00" in text  # naive / in memory
    assert "1.8" in text  # its target
    assert "900" in text


def test_acceptance_is_counted_against_the_artifacts_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("acceptance")
    loaded = tiny_loaded()
    rows = own_rows(loaded.verifier, 4)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "load_verifier", lambda name, **_: loaded)
    data, profile = tmp_path / "data", tmp_path / "profile.json"
    parts = {"train": rows, "validation": rows, "test": rows}
    write_artifact(data, parts, contract({name: len(part) for name, part in parts.items()}))
    words = ["ngram", "-k", "3", "--artifact", str(data), "--max-new-tokens", "16"]
    module.main([*words, "--json", str(profile)])
    [found] = json.loads(profile.read_text())
    assert found["measurement_conditions"]["num_samples"] == 4
    lengths = {int(n): c for n, c in found["acceptance_length_histogram"].items()}
    mean = sum(n * c for n, c in lengths.items()) / sum(lengths.values())
    assert found["mean_accept_length"] == pytest.approx(mean, abs=1e-5)
    drafter = create("ngram", loaded)
    configuration = Configuration("ngram", 3)
    plan = Plan(rows, [configuration], repeats=1, max_new_tokens=16)
    whole = module.decode(loaded, drafter, configuration, rows, plan)
    assert whole.equal == 4
    other = [replace(row, continuation_ids=(0,) * 16) for row in rows]
    assert module.decode(loaded, drafter, configuration, other, plan).equal == 0


def test_agreement_counts_the_choices_of_two_verifiers() -> None:
    module = script("agreement")
    loaded = tiny_loaded()
    config = tiny_config(vocab=264)
    rounded = replace(loaded, verifier=LeanVerifier.from_config(config, int8=True))
    [row] = own_rows(loaded.verifier, 1)  # type: ignore[arg-type]
    same = module.compare(loaded, loaded, loaded.verifier, row, 16)
    assert (same.same, same.prefix, same.equal) == (same.tokens, same.tokens, True)
    assert (same.weights_drafts, same.drafts) == (same.tokens, same.tokens)
    found = module.compare(loaded, rounded, rounded.verifier, row, 16)
    assert found.prefix <= found.same <= found.tokens == same.tokens
    assert found.weights_drafts == found.drafts <= found.tokens
    stranger = replace(loaded, verifier=LeanVerifier.from_config(config, seed=1))
    other = module.compare(loaded, stranger, loaded.verifier, row, 16)
    assert other.same < other.tokens == other.drafts
    assert other.weights_drafts < other.tokens
    assert not other.equal
    console = Console(width=100, record=True)
    console.print(module.table([same, other]))
    assert f"{same.same + other.same}" in console.export_text()
