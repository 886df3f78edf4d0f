"""The CPU kernels: equal to the PyTorch decoder, and bit for bit the same in any company."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.scripted import Oracle, RandomDrafter
from breakeven.errors import ModelError
from breakeven.verifier.cache import ReadOnlyPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Output
from breakeven.verifier.linear import FrozenLinear
from breakeven.verifier.lora import LoRASpec, RowLoRA
from breakeven.verifier.native import build as building
from breakeven.verifier.native import library
from breakeven.verifier.native.panels import Panels, projections
from breakeven.verifier.rows import BlockShape, Rows, chain, draft_block, noised_blocks
from tiny import FAMILIES, tiny_config

pytestmark = pytest.mark.skipif(
    not library.status().active, reason=f"native path: {library.status().reason}"
)

SIZES: dict[str, dict[str, Any]] = {
    "head 8": {},
    "head 16, groups of 4": {"hidden": 64, "heads": 4, "kv_heads": 1},
    "head 64, multi-head": {"hidden": 128, "heads": 2, "kv_heads": 2},
    "head 128, odd vocabulary": {
        "hidden": 128,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 128,
        "vocab": 101,
    },
    "head 24, untied": {"hidden": 72, "heads": 3, "kv_heads": 1, "tie_word_embeddings": False},
    "odd inner width": {"intermediate_size": 37},
}
BIASES = {"attention_bias": True, "mlp_bias": True}


def pair(family: str = "llama", **sizes: Any) -> tuple[LeanVerifier, LeanVerifier]:
    """The same random fp32 model natively and in PyTorch."""
    config = tiny_config(family, **sizes)
    native = LeanVerifier.from_config(config)
    assert native.mode == "native"
    return native, LeanVerifier.from_config(config, native=False)


def adapter_of(verifier: LeanVerifier, layers: tuple[int, ...] | None = None) -> RowLoRA:
    lora = RowLoRA(verifier.architecture, LoRASpec(rank=4, alpha=8.0, layers=layers))
    torch.manual_seed(5)
    for p in lora.parameters():
        p.data.normal_(0, 0.2)
    return lora.requires_grad_(False)


def ids_of(*size: int, vocab: int = 64, seed: int = 0) -> Tensor:
    return torch.randint(vocab, size, generator=torch.Generator().manual_seed(seed))


def after(verifier: LeanVerifier, lengths: list[int], rows: Rows, **options: Any) -> Output:
    """One pass over a cache of random prompts of these lengths."""
    cache = verifier.new_cache(len(lengths), max(lengths) + rows.width)
    prompts = ids_of(len(lengths), max(lengths))
    verifier.run(Phase.PREFILL, chain(prompts, cache.lengths), cache, Ledger(), logits="none")
    cache.commit(lengths)
    return verifier.run(Phase.VERIFY, rows, cache, Ledger(), **options)


def check(a: Output, b: Output) -> None:
    """Equal to 1e-4 of the reference's scale."""
    for mine, reference in ((a.logits, b.logits), (a.hidden, b.hidden)):
        assert mine is not None
        assert reference is not None
        assert mine.shape == reference.shape
        assert (mine - reference).abs().max() <= 1e-4 * max(1.0, float(reference.abs().max()))
    assert sorted(a.taps) == sorted(b.taps)
    for layer, tap in a.taps.items():
        assert torch.allclose(tap, b.taps[layer], rtol=1e-4, atol=1e-4)


def check_ragged_passes(native: LeanVerifier, reference: LeanVerifier) -> None:
    """Passes of several widths behind prompts of unequal length."""
    lengths = [13, 1, 7]
    for width in (1, 2, 5, 30):
        rows = chain(ids_of(3, width, seed=width), torch.tensor(lengths))
        mine = after(native, lengths, rows, taps=(1, 0))
        check(mine, after(reference, lengths, rows, taps=(0, 1)))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_passes_equal_pytorch(family: str, sizes: str) -> None:
    check_ragged_passes(*pair(family, **SIZES[sizes]))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_biases_equal_pytorch(family: str) -> None:
    config = tiny_config(family, **BIASES)
    verifiers = [LeanVerifier.from_config(config, native=native) for native in (True, False)]
    rows = chain(ids_of(1, 3), torch.tensor([5]))
    check(*(after(v, [5], rows) for v in verifiers))


@pytest.mark.parametrize("layers", [None, (1,)])
@pytest.mark.parametrize("family", FAMILIES)
def test_draft_blocks_with_an_adapter_equal_pytorch(
    family: str, layers: tuple[int, ...] | None
) -> None:
    native, reference = pair(family, **SIZES["odd inner width"])
    lora, lengths = adapter_of(native, layers), [9, 4]
    for causal_block in (False, True):
        shape = BlockShape(6, causal=causal_block)
        rows = draft_block(torch.tensor([[3], [4]]), torch.tensor(lengths), shape)
        check(*(after(v, lengths, rows, adapter=lora) for v in (native, reference)))


def test_rows_with_the_gate_off_are_the_verifiers_own_bits() -> None:
    native, _ = pair()
    rows = draft_block(torch.tensor([[3]]), torch.tensor([9]), BlockShape(20))
    drafted = after(native, [9], rows, adapter=adapter_of(native)).logits
    plain = after(native, [9], chain(torch.tensor([[3]]), torch.tensor([9]))).logits
    assert drafted is not None
    assert plain is not None
    assert torch.equal(drafted[:, :1], plain)


def test_a_changed_adapter_counts_at_once() -> None:
    native, reference = pair()
    lora = adapter_of(native)
    rows = draft_block(torch.tensor([[3]]), torch.tensor([9]), BlockShape(2))
    before = after(native, [9], rows, adapter=lora)
    for p in lora.parameters():
        p.data = p.data * 1.5
    changed = after(native, [9], rows, adapter=lora)
    check(changed, after(reference, [9], rows, adapter=lora))
    assert not torch.equal(before.hidden, changed.hidden)


def test_noised_blocks_see_only_their_past() -> None:
    native, reference = pair()
    lora = adapter_of(native)
    rows = noised_blocks(torch.tensor([[2, 5], [0, 3]]), BlockShape(3))
    check(*(after(v, [8, 6], rows, adapter=lora) for v in (native, reference)))


@given(data=st.data())
@settings(max_examples=40)
def test_random_layouts_equal_pytorch(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(FAMILIES))
    native, reference = MODELS[family]
    batch, width = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 40))
    lengths = data.draw(st.lists(st.integers(1, 20), min_size=batch, max_size=batch))
    seed = torch.Generator().manual_seed(data.draw(st.integers(0, 1 << 20)))
    shape = (batch, width, width) if data.draw(st.booleans()) else (width, width)
    sees = (torch.rand(shape, generator=seed) < 0.5) | torch.eye(width, dtype=torch.bool)
    gate = torch.rand(width, generator=seed) < data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    past = torch.randint(0, 30, (batch, width), generator=seed)
    rows = Rows(
        torch.randint(64, (batch, width), generator=seed),
        torch.randint(50, (batch, width), generator=seed),
        sees,
        past=past.minimum(torch.tensor(lengths)[:, None]) if data.draw(st.booleans()) else None,
        gate=gate if data.draw(st.booleans()) else None,
    )
    lora = ADAPTERS[family] if data.draw(st.booleans()) else None
    check(*(after(v, lengths, rows, adapter=lora, taps=(0,)) for v in (native, reference)))


if library.status().active:
    MODELS = {family: pair(family) for family in FAMILIES}
    ADAPTERS = {family: adapter_of(MODELS[family][0]) for family in FAMILIES}


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_has_the_same_bits_in_any_company(family: str, threads: int) -> None:
    """Logits of a W-row pass are those of W one-row passes: verification is plain decoding."""
    sizes = {"hidden": 144, "heads": 6, "kv_heads": 2, "intermediate_size": 200, "vocab": 133}
    native = LeanVerifier.from_config(tiny_config(family, **sizes))
    ids, cached = ids_of(1, 64, seed=2), 11
    prompt = ids_of(1, cached)
    torch.set_num_threads(1)
    cache = native.new_cache(1, cached + 64)
    native.run(Phase.PREFILL, chain(prompt, cache.lengths), cache, Ledger())
    cache.commit(cached)
    steps = []
    for i in range(64):
        out = native.run(Phase.PLAIN, chain(ids[:, i : i + 1], cache.lengths), cache, Ledger())
        cache.commit(1)
        steps.append(out.logits)
    plain = torch.cat(steps, dim=1)  # type: ignore[arg-type]
    torch.set_num_threads(threads)
    for width in range(1, 65):
        cache.crop(0, cached)
        out = native.run(Phase.VERIFY, chain(ids[:, :width], cache.lengths), cache, Ledger())
        assert out.logits is not None
        assert torch.equal(out.logits, plain[:, :width]), width


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_has_the_same_bits_in_any_batch(family: str, threads: int) -> None:
    native = MODELS[family][0]
    lengths = [7, 19, 1, 12]
    rows = chain(ids_of(4, 9, seed=3), torch.tensor(lengths))
    together = after(native, lengths, rows).logits
    assert together is not None
    prompts = ids_of(4, 19)
    for i, length in enumerate(lengths):
        cache = native.new_cache(1, length + 20)
        alone = chain(prompts[i : i + 1, :length], cache.lengths)
        native.run(Phase.PREFILL, alone, cache, Ledger())
        cache.commit(length)
        alone = chain(rows.token_ids[i : i + 1], cache.lengths)
        logits = native.run(Phase.VERIFY, alone, cache, Ledger()).logits
        assert logits is not None
        assert torch.equal(logits[0], together[i])


@pytest.mark.parametrize("batch", [1, 5])
def test_speculation_is_plain_decoding_bit_for_bit(batch: int) -> None:
    native = MODELS["llama"][0]
    asked = [Request(str(i), tuple(range(1 + i, 9 + 2 * i)), 24) for i in range(6)]
    plain = {c.id: c.tokens for c in generate(native, asked)}
    script = {r.prompt: plain[r.id] for r in asked}
    for drafter in (Oracle(script, 64), RandomDrafter(64)):
        done = generate(native, asked, drafter=drafter, k=5, batch=batch)
        assert {c.id: c.tokens for c in done} == plain


def test_choices_are_the_arg_max_of_the_logits() -> None:
    native, _ = pair(vocab=101)
    rows = chain(ids_of(2, 30, vocab=101), torch.tensor([3, 5]))
    logits = after(native, [3, 5], rows).logits
    chosen = after(native, [3, 5], rows, logits="choices")
    assert logits is not None
    assert chosen.logits is None
    assert chosen.choices is not None
    assert torch.equal(chosen.choices, logits.argmax(-1))


def test_of_equal_logits_the_lowest_id_is_chosen() -> None:
    weight = torch.zeros(100, 4)
    weight[[17, 40, 99]] = 1.0
    kernels = library.kernels()
    assert kernels is not None
    panels = Panels(kernels, weight, projections(4, (100,)))
    assert panels.choose(torch.ones(3, 4), None).tolist() == [17, 17, 17]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("inputs", [1, 7, 300])
def test_panels_hold_the_weights(inputs: int, interleaved: bool) -> None:
    outputs = (21, 21) if interleaved else (40, 3, 16)
    weight, bias = torch.randn(sum(outputs), inputs), torch.randn(sum(outputs))
    kernels = library.kernels()
    assert kernels is not None
    panels = Panels(kernels, weight, projections(inputs, outputs, interleaved))
    assert torch.equal(panels.plain(), weight)
    for rows in (0, 1, 25, 130):
        x = torch.randn(rows, inputs)
        expected = torch.nn.functional.linear(x, weight, bias)
        assert torch.allclose(panels.linear(x, bias), expected, rtol=1e-4, atol=1e-4)


def test_embeddings_come_from_the_heads_panels() -> None:
    native, reference = pair(vocab=101)
    ids = ids_of(3, 50, vocab=101)
    assert torch.equal(native.embed(ids), reference.embed(ids))
    assert torch.equal(native.head_weight, reference.head_weight)


@pytest.mark.parametrize("native", [False, True])
def test_a_frozen_linear_saves_like_a_linear_and_keeps_its_constants(native: bool) -> None:
    plain, other = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    frozen = FrozenLinear(plain.weight.detach(), plain.bias.detach())
    frozen.pack(native=native)
    other.load_state_dict(frozen.state_dict())
    assert torch.equal(other.weight, plain.weight)
    assert torch.equal(other.bias, plain.bias)
    module = torch.nn.ModuleDict({"head": frozen})
    module.load_state_dict(module.state_dict())
    with torch.no_grad():
        assert torch.allclose(frozen(torch.ones(2, 5)), plain(torch.ones(2, 5)))


def test_gradients_flow_through_pytorch_and_passes_stay_native_afterwards() -> None:
    native, reference = pair()
    rows = noised_blocks(torch.tensor([[2, 5]]), BlockShape(3))
    grads = []
    for verifier in (native, reference):
        lora = adapter_of(verifier).requires_grad_(True)
        cache = verifier.new_cache(1, 8)
        verifier.run(Phase.PREFILL, chain(ids_of(1, 8), cache.lengths), cache, Ledger())
        cache.commit(8)
        out = verifier.body(rows, ReadOnlyPast(cache), lora)
        verifier.head(out.hidden).square().mean().backward()
        grads.append(lora.mask_vector.grad)
    assert torch.allclose(*grads, rtol=1e-3, atol=1e-6)  # type: ignore[misc]
    with torch.no_grad():  # an evaluation over a read-only past: PyTorch on the panels
        quiet = native.body(rows, ReadOnlyPast(cache), lora)
    assert torch.allclose(quiet.hidden, out.hidden, rtol=1e-4, atol=1e-4)
    step = chain(torch.tensor([[3]]), torch.tensor([5]))
    check(after(native, [5], step), after(reference, [5], step))


def test_other_numbers_and_heads_stay_in_pytorch() -> None:
    assert LeanVerifier.from_config(tiny_config(), dtype=torch.float64).mode == "eager"
    odd = tiny_config(hidden=24, heads=2, kv_heads=1)  # heads of 12
    assert LeanVerifier.from_config(odd).mode == "eager"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder and nothing loaded; afterwards all is as it was."""
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path))
    library._state.cache_clear()
    yield tmp_path
    library._state.cache_clear()


def test_without_a_compiler_one_warning_and_pytorch(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.warns(UserWarning, match=r"no C\+\+ compiler .* is on the path") as caught:
        verifiers = [LeanVerifier.from_config(tiny_config()) for _ in range(2)]
    assert [v.mode for v in verifiers] == ["eager", "eager"]
    assert len(caught) == 1
    assert (
        after(verifiers[0], [4], chain(torch.tensor([[3]]), torch.tensor([4]))).logits is not None
    )


def test_a_compiler_that_fails_is_named(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fresh / "broken++"
    fake.write_text("#!/bin/sh\necho 'fatal error: no such thing' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.warns(UserWarning, match="broken.* cannot compile .*no such thing"):
        assert library.kernels() is None
    assert not library.status().active
    assert not list((fresh / "native").iterdir())


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.crowded() >= 0
    monkeypatch.setenv(library.SWITCH, "0")
    assert library.crowded() == 0
    assert library.status() == library.Status(False, "switched off by BREAKEVEN_NATIVE=0")
    assert LeanVerifier.from_config(tiny_config()).mode == "eager"


def test_the_build_is_kept_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    path = building.build()

    def never(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(building, "_compile", never)
    assert building.build() == path
    compiler = building.find_compiler()
    name = building.fingerprint(compiler, building.TUNING)
    assert name == path.stem
    monkeypatch.setattr(building, "processor", lambda: ("x86_64", "other features"))
    assert building.fingerprint(compiler, building.TUNING) != name


KINDS = ["", "-march=haswell"] if platform.machine() == "x86_64" else [""]


@pytest.mark.parametrize("tuning", KINDS)
def test_other_instruction_sets_compute_the_same(
    tuning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built without this processor's extras, the one source is right as well."""
    if tuning and "avx2" not in building.processor()[1].split():
        pytest.skip("this processor has no AVX2")
    kernels = library.opened(building.build((tuning,)))
    monkeypatch.setattr(library, "kernels", lambda: kernels)
    for sizes in SIZES.values():
        native, reference = pair("qwen3", **sizes)
        lora, lengths = adapter_of(native), [13, 1, 7]
        for width in (1, 3, 20):
            rows = chain(ids_of(3, width, seed=width), torch.tensor(lengths))
            rows = replace(rows, gate=torch.arange(width) % 2 == 0)
            check(*(after(v, lengths, rows, adapter=lora) for v in (native, reference)))
        one = after(native, [7], chain(ids_of(1, 1), torch.tensor([7]))).logits
        many = after(native, [7], chain(ids_of(1, 1).expand(1, 9), torch.tensor([7]))).logits
        assert one is not None
        assert many is not None
        assert torch.equal(one[0, 0], many[0, 0])


def test_a_forked_child_has_threads_of_its_own() -> None:
    script = (
        "import os, sys, torch\n"
        "from breakeven.verifier.native import library\n"
        "from breakeven.verifier.native.panels import Panels, projections\n"
        "torch.set_num_threads(2)\n"
        "p = Panels(library.kernels(), torch.eye(64), projections(64, (64,)))\n"
        "x = torch.randn(3, 64); assert torch.equal(p.linear(x, None), x)\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if torch.equal(p.linear(x, None), x) else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=120, check=False, env=os.environ)
    assert done.returncode == 0


def test_a_cache_that_is_too_small_is_our_own_mistake() -> None:
    native, _ = pair()
    cache = native.new_cache(1, 3)
    with pytest.raises(AssertionError, match="too small"):
        native.run(Phase.PREFILL, chain(ids_of(1, 4), cache.lengths), cache, Ledger())


def test_backend_native_says_why_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    from breakeven.verifier.load import load_verifier

    monkeypatch.setenv(library.SWITCH, "0")
    with pytest.raises(ModelError, match="no native path here: switched off"):
        load_verifier("smollm2-135m", backend="native")


@pytest.mark.slow
def test_greedy_decoding_of_the_real_model_equals_pytorch() -> None:
    from breakeven.verifier.load import load_verifier

    asked = []
    answers = []
    for backend in ("native", "lean"):
        loaded = load_verifier("smollm2-135m", backend=backend)
        assert loaded.verifier.mode == ("native" if backend == "native" else "eager")
        if not asked:
            texts = ("The lighthouse keeper", "def fibonacci(n):", "Once upon a time")
            encode = loaded.tokenizer
            asked = [Request(t, tuple(encode(t)["input_ids"]), 128) for t in texts]
        answers.append({c.id: c.tokens for c in generate(loaded.verifier, asked)})
    assert answers[0] == answers[1]


def test_the_source_names_its_own_structs_sizes() -> None:
    """The structs of library.py have the sizes the C++ compiler gives theirs."""
    kernels = library.kernels()
    assert kernels is not None
    sizes = (ctypes.c_int64 * 5)()
    kernels.breakeven_sizes(sizes)
    ours = (library.Projections, library.Layer, library.Model, library.Adapter, library.Pass)
    assert list(sizes) == [ctypes.sizeof(s) for s in ours]
