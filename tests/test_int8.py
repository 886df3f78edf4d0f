"""Int8 weights: how far they are rounded, the kernels against PyTorch, the verifier's own name."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from breakeven.cli.app import run
from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import load_artifact
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.card import Card
from breakeven.drafters.ngram import NGram
from breakeven.drafters.scripted import Oracle
from breakeven.errors import DataError, DrafterError, ModelError
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.int8 import GROUP, Int8
from breakeven.verifier.linear import FrozenLinear
from breakeven.verifier.load import load_verifier
from breakeven.verifier.native import build as building
from breakeven.verifier.native import library
from breakeven.verifier.native.body import shelf_for
from breakeven.verifier.native.panels import Panels, panel_floats, projections
from breakeven.verifier.rows import BlockShape, chain, draft_block
from measuring import prompts, small_artifact
from test_native import SIZES, adapter_of, after, check, check_ragged_passes, ids_of
from tiny import FAMILIES, tiny_config
from tiny_chat import chat_model
from training import fit, objective_of, own_rows

native_only = pytest.mark.skipif(
    not library.status().active, reason=f"native path: {library.status().reason}"
)
UNEVEN = {"hidden": 144, "heads": 6, "kv_heads": 2, "intermediate_size": 200, "vocab": 133}


def pair(family: str = "llama", **sizes: object) -> tuple[LeanVerifier, LeanVerifier]:
    """The same random int8 model natively and in PyTorch."""
    config = tiny_config(family, **sizes)  # type: ignore[arg-type]
    native = LeanVerifier.from_config(config, int8=True)
    assert native.mode == "native"
    return native, LeanVerifier.from_config(config, native=False, int8=True)


def panels_of(weight: Int8, outputs: tuple[int, ...], interleaved: bool = False) -> Panels:
    kernels = library.kernels()
    assert kernels is not None
    shape = projections(weight.q.shape[1], outputs, interleaved, library.INT8)
    return Panels(kernels, weight, shape)


@given(
    outputs=st.integers(1, 9),
    inputs=st.integers(1, 200),
    magnitude=st.sampled_from([1e-30, 1e-3, 1.0, 1e6]),
    seed=st.integers(0, 1 << 16),
)
@settings(max_examples=50)
def test_a_weight_is_wrong_by_half_a_scale_at_most(
    outputs: int, inputs: int, magnitude: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator) * magnitude
    rounded = Int8.nearest(weight)
    scales = rounded.scales.repeat_interleave(GROUP, dim=1)[:, :inputs]
    assert rounded.scales.shape == (outputs, -(-inputs // GROUP))
    assert rounded.q.abs().max() == 127  # the range is used, and symmetric
    assert ((rounded.plain() - weight).abs() <= scales * 0.5001).all()


def test_zeros_stay_zero_and_a_row_does_not_depend_on_its_neighbours() -> None:
    weight = torch.randn(5000, 70)
    weight[17] = 0.0
    rounded = Int8.nearest(weight)
    assert not rounded.plain()[17].any()
    assert torch.equal(Int8.nearest(weight[4000:4700]).plain(), rounded.plain()[4000:4700])


@native_only
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("inputs", [1, 7, 16, 64, 65, 100, 300])
def test_panels_hold_the_whole_numbers_and_multiply_them(inputs: int, interleaved: bool) -> None:
    outputs = (21, 21) if interleaved else (40, 3, 16)
    weight, bias = Int8.nearest(torch.randn(sum(outputs), inputs)), torch.randn(sum(outputs))
    panels = panels_of(weight, outputs, interleaved)
    assert torch.equal(panels.plain(), weight.plain())
    for rows in (0, 1, 2, 3, 5, 25, 130):
        x = torch.randn(rows, inputs)
        expected = torch.nn.functional.linear(x, weight.plain(), bias)
        assert torch.allclose(panels.linear(x, bias), expected, rtol=1e-4, atol=1e-4)


@native_only
def test_a_table_gives_rows_and_choices() -> None:
    weight = Int8.nearest(torch.randn(101, 70))
    panels, x = panels_of(weight, (101,)), torch.randn(3, 70)
    ids = torch.tensor([[0, 100], [17, 16]])
    assert torch.equal(panels.rows(ids), weight.plain()[ids])
    assert torch.equal(panels.choose(x, None), panels.linear(x, None).argmax(-1))


@native_only
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_passes_equal_pytorch(family: str, sizes: str) -> None:
    native, reference = pair(family, **SIZES[sizes])
    check_ragged_passes(native, reference)
    ids = ids_of(4, 9)
    assert torch.equal(native.embed(ids), reference.embed(ids))


@native_only
def test_it_is_another_model_than_the_plain_one() -> None:
    rows = chain(ids_of(1, 9), torch.tensor([7]))
    plain = LeanVerifier.from_config(tiny_config())
    found = [after(v, [7], rows).hidden for v in (plain, *pair())]
    apart = (found[0] - found[1]).abs().max()
    assert apart > 100 * (found[1] - found[2]).abs().max()  # rounding weights is no rounding error
    assert apart < 0.3 * found[0].abs().max()


@native_only
@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_work_on_top_in_fp32(family: str) -> None:
    native, reference = pair(family)
    lora, lengths = adapter_of(native), [9, 4]
    rows = draft_block(torch.tensor([[3], [4]]), torch.tensor(lengths), BlockShape(6))
    check(*(after(v, lengths, rows, adapter=lora) for v in (native, reference)))
    plain = after(native, lengths, chain(torch.tensor([[3], [4]]), torch.tensor(lengths))).logits
    drafted = after(native, lengths, rows, adapter=lora).logits
    assert plain is not None
    assert drafted is not None
    assert torch.equal(drafted[:, :1], plain)  # the row with the gate off


def steps_and_passes(native: LeanVerifier, widths: range) -> tuple[Tensor, dict[int, Tensor]]:
    """Logits of one-row passes, and of passes of W rows over the same cache."""
    ids, cached = ids_of(1, widths[-1], seed=2), 11
    cache = native.new_cache(1, cached + widths[-1])
    native.run(Phase.PREFILL, chain(ids_of(1, cached), cache.lengths), cache, Ledger())
    cache.commit(cached)
    steps, wide = [], {}
    for i in range(widths[-1]):
        out = native.run(Phase.PLAIN, chain(ids[:, i : i + 1], cache.lengths), cache, Ledger())
        cache.commit(1)
        assert out.logits is not None
        steps.append(out.logits)
    for width in widths:
        cache.crop(0, cached)
        out = native.run(Phase.VERIFY, chain(ids[:, :width], cache.lengths), cache, Ledger())
        assert out.logits is not None
        wide[width] = out.logits
    return torch.cat(steps, dim=1), wide


@native_only
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_row_has_the_same_bits_at_every_width(family: str, threads: int) -> None:
    native = LeanVerifier.from_config(tiny_config(family, **UNEVEN), int8=True)  # type: ignore[arg-type]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        plain, wide = steps_and_passes(native, range(1, 65))
    finally:
        torch.set_num_threads(before)
    for width, logits in wide.items():
        assert torch.equal(logits, plain[:, :width]), width


KINDS = ["", "-march=haswell"] if platform.machine() == "x86_64" else [""]


@native_only
@pytest.mark.parametrize("tuning", KINDS)
def test_other_instruction_sets_compute_the_same(
    tuning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tuning and "avx2" not in building.processor()[1].split():
        pytest.skip("this processor has no AVX2")
    kernels = library.opened(building.build((tuning,)))
    monkeypatch.setattr(library, "kernels", lambda: kernels)
    native, reference = pair("qwen3", **UNEVEN)
    for width in (1, 2, 3, 4, 7, 20):
        rows = chain(ids_of(1, width, seed=width), torch.tensor([7]))
        check(*(after(v, [7], rows) for v in (native, reference)))
    plain, wide = steps_and_passes(native, range(1, 14))
    assert all(torch.equal(logits, plain[:, :width]) for width, logits in wide.items())


def trained(verifier: LeanVerifier) -> Drafter:
    """A block drafter that has learned a little, on texts of the int8 verifier itself."""
    rows = own_rows(verifier, 4)
    objective = objective_of("peft-bd-gated", verifier, rows)
    fit(objective, rows, 12)
    drafter = objective.drafter()
    assert isinstance(drafter, Drafter)
    return drafter


@pytest.mark.parametrize("native", [pytest.param(True, marks=native_only), False])
@pytest.mark.parametrize("batch", [1, 3])
def test_speculation_is_plain_decoding(native: bool, batch: int) -> None:
    verifier = LeanVerifier.from_config(tiny_config("qwen3"), native=native, int8=True)
    asked = [Request(str(i), tuple(range(1 + i, 9 + 2 * i)), 24) for i in range(4)]
    plain = {c.id: c.tokens for c in generate(verifier, asked)}
    oracle = Oracle({r.prompt: plain[r.id] for r in asked}, 64)
    for drafter in (NGram(), oracle, trained(verifier)):
        done = list(generate(verifier, asked, drafter=drafter, k=3, batch=batch))
        assert {c.id: c.tokens for c in done} == plain
        assert sum(r.drafted for c in done for r in c.rounds) > 0


@native_only
def test_no_other_copy_of_the_weights_is_kept() -> None:
    verifier = LeanVerifier.from_config(tiny_config(tie_word_embeddings=False), int8=True)
    linears = [verifier._head, verifier._table, *verifier.blocks[0].linears.values()]
    for linear in linears:
        assert isinstance(linear, FrozenLinear)
        assert linear.panels is not None
        assert linear._plain is None
        assert linear._int8 is None
    shape = projections(576, (49152,), kind=library.INT8)
    assert 4 * panel_floats(shape) == 576 * 49152 * (1 + 4 / GROUP)
    a = verifier.architecture
    whole, plain = (shelf_for(a, kind)._free.numel() for kind in (library.INT8, library.FP32))
    assert whole < 0.4 * plain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    return chat_model(tmp_path / "model")


@pytest.mark.filterwarnings("ignore:.*int8 weights are faster")
def test_it_has_a_name_and_a_hash_of_its_own(folder: Path) -> None:
    plain, rounded = load_verifier(str(folder)), load_verifier(str(folder), weights="int8")
    same = load_verifier(f"{folder}+int8")
    assert rounded.identity == same.identity
    assert rounded.identity.name == rounded.verifier.name == f"{folder}+int8"
    assert rounded.identity.weights_sha256 != plain.identity.weights_sha256
    assert rounded.identity.tokenizer_sha256 == plain.identity.tokenizer_sha256
    assert load_verifier(str(folder)).identity == plain.identity


def test_in_bf16_the_same_whole_numbers_are_multiplied(folder: Path) -> None:
    with pytest.warns(UserWarning, match="faster in the CPU kernels only.*multiplied as bfloat16"):
        half = load_verifier(str(folder), weights="int8", dtype=torch.bfloat16).verifier
    reference = load_verifier(str(folder), weights="int8", backend="lean").verifier
    assert isinstance(half, LeanVerifier)
    assert isinstance(reference, LeanVerifier)
    assert half.mode == "eager"
    assert torch.equal(half.head_weight, reference.head_weight.bfloat16())


def test_what_was_made_for_the_plain_verifier_is_refused(folder: Path, tmp_path: Path) -> None:
    plain = load_verifier(str(folder)).identity
    rounded = load_verifier(str(folder), weights="int8", backend="lean").identity
    made = small_artifact(tmp_path / "data", prompts(2), plain)
    load_artifact(made, plain)
    with pytest.raises(DataError, match=r"weights_sha256 is .*\+int8' has .*breakeven prepare"):
        load_artifact(made, rounded)
    Card("ngram", plain, {}).write(tmp_path / "drafter")
    with pytest.raises(DrafterError, match=r"trained for verifier .*this verifier is '.*\+int8'"):
        Card.read(tmp_path / "drafter", "ngram", rounded)


def test_other_kinds_and_other_decoders_are_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"weights 'int4': .*int8"):
        load_verifier(str(folder), weights="int4")
    with pytest.raises(ModelError, match=r"need the lean decoder \(not backend transformers\)"):
        load_verifier(str(folder), weights="int8", backend="transformers")


def test_a_folder_may_be_called_so_itself(folder: Path) -> None:
    named = folder.rename(folder.with_name("model+int8"))
    plain = load_verifier(str(named), backend="lean").verifier
    rounded = load_verifier(f"{named}+int8", backend="lean").verifier
    assert isinstance(plain, LeanVerifier)
    assert isinstance(rounded, LeanVerifier)
    assert not torch.equal(plain.head_weight, rounded.head_weight)


def test_the_command_line_takes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = ["generate", "Hello", "-m", str(folder), "--threads", "1", "--max-new-tokens", "12"]
    assert run([*shared, "--weights", "int8", "--drafter", "ngram", "--compare"]) == 0
    assert "equal to plain decoding" in capsys.readouterr().err
    assert run([*shared, "--weights", "int9"]) == 2
    assert "weights 'int9'" in capsys.readouterr().err
