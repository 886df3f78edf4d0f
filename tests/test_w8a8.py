"""Int8 weights times int8 activations, for drafts: the kernels against whole numbers in PyTorch."""

from __future__ import annotations

import copy
import ctypes
import platform
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.quantized import Quantized
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.int8 import GROUP, LARGEST, Int8
from breakeven.verifier.linear import FrozenLinear
from breakeven.verifier.native import build as building
from breakeven.verifier.native import library
from breakeven.verifier.native.panels import SHARE, Panels, projections
from breakeven.verifier.rows import BlockShape, chain, draft_block
from test_int8 import UNEVEN, steps_and_passes
from test_native import BIASES, adapter_of, after, ids_of
from tiny import FAMILIES, tiny_config

pytestmark = pytest.mark.skipif(
    not library.status().active, reason=f"native path: {library.status().reason}"
)


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are W8A8 here, whatever this processor has: the kernels compute the same."""
    monkeypatch.setattr(library, "draft_kind", lambda: library.W8A8)


def rounded_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers ``[rows, shares, 16]`` and scales ``[rows, shares]`` of ``[rows, inputs]``."""
    shares = F.pad(x, (0, -x.shape[-1] % SHARE)).unflatten(-1, (-1, SHARE))
    largest = shares.abs().amax(-1)
    factors = torch.where(largest > 1e-35, torch.full_like(largest, LARGEST) / largest, 0.0)
    return (shares * factors[..., None]).round(), torch.where(factors > 0, largest / LARGEST, 0.0)


def product(x: Tensor, weight: Int8) -> Tensor:
    """``[rows, inputs]`` to ``[rows, outputs]``: sums of whole numbers, scaled."""
    (outputs, inputs), per_group = weight.q.shape, GROUP // SHARE
    whole, scales = rounded_activations(x)
    q = F.pad(weight.q.long(), (0, -inputs % SHARE)).view(outputs, -1, SHARE)
    sums = torch.einsum("rsk,osk->ros", whole.long(), q).double()
    groups = torch.arange(sums.shape[-1]) // per_group
    return (sums * scales[:, None].double() * weight.scales[:, groups].double()).sum(-1).float()


class Reference(FrozenLinear):
    """A linear whose inputs are rounded."""

    def forward(self, x: Tensor) -> Tensor:
        whole, scales = rounded_activations(x)
        return super().forward((whole * scales[..., None]).flatten(-2)[..., : x.shape[-1]])


def reference_of(verifier: LeanVerifier) -> LeanVerifier:
    """The rounded copy of a PyTorch verifier, its linears' inputs rounded as well."""
    plain = verifier.rounded()
    made = copy.copy(plain)
    made.blocks = [
        b.with_linears(lambda _, own: Reference(own.weight, own.bias)) for b in plain.blocks
    ]
    made._head = Reference(plain._head.weight)
    return made


def panels_of(weight: Int8, outputs: tuple[int, ...], interleaved: bool = False) -> Panels:
    kernels = library.kernels()
    assert kernels is not None
    return Panels(
        kernels, weight, projections(weight.q.shape[1], outputs, interleaved, library.W8A8)
    )


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


INPUTS = [1, 3, 4, 15, 16, 17, 63, 64, 65, 97, 130, 300]


def check_products(inputs: int, interleaved: bool) -> None:
    outputs = (21, 21) if interleaved else (40, 3, 16)
    generator = torch.Generator().manual_seed(inputs)
    weight = Int8.nearest(torch.randn(sum(outputs), inputs, generator=generator))
    bias = torch.randn(sum(outputs), generator=generator)
    panels = panels_of(weight, outputs, interleaved)
    assert torch.equal(panels.plain(), weight.plain())
    for rows in (0, *range(1, 27), 130):
        x = torch.randn(rows, inputs, generator=generator)
        found = panels.linear(x, bias)
        assert torch.allclose(found, product(x, weight) + bias, rtol=1e-5, atol=2e-5), rows


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.usefixtures("threads")
def test_the_products_are_those_of_the_whole_numbers(inputs: int, interleaved: bool) -> None:
    check_products(inputs, interleaved)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="an instruction set of x86")
def test_a_processor_without_such_products_computes_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "avx2" not in building.processor()[1].split():
        pytest.skip("this processor has no AVX2")
    kernels = library.opened(building.build(("-march=haswell",)))
    assert not kernels.breakeven_multiplies_int8()
    monkeypatch.setattr(library, "kernels", lambda: kernels)
    for inputs in INPUTS:
        check_products(inputs, interleaved=False)


def test_a_product_is_near_that_of_the_numbers_themselves() -> None:
    weight, x = Int8.nearest(torch.randn(50, 576)), torch.randn(20, 576)
    exact = F.linear(x, weight.plain())
    apart = panels_of(weight, (50,)).linear(x, None) - exact
    assert 0 < apart.square().mean().sqrt() < 0.01 * exact.square().mean().sqrt()


@pytest.mark.parametrize("magnitude", [0.0, 1e-42, 1e-30, 1.0, 1e25])
def test_activations_may_be_nothing_tiny_or_large(magnitude: float) -> None:
    weight, x = Int8.nearest(torch.randn(20, 80)), torch.randn(3, 80)
    x[1, 16:48] *= magnitude
    found = panels_of(weight, (20,)).linear(x, None)
    assert found.isfinite().all()
    expected = product(x, weight)
    most = expected.abs().amax(-1, keepdim=True)
    assert ((found - expected).abs() <= 1e-5 * most).all()


def test_choices_and_margins_are_those_of_the_outputs() -> None:
    weight = Int8.nearest(torch.randn(101, 70))
    panels, x = panels_of(weight, (101,)), torch.randn(30, 70)
    best = panels.linear(x, None).topk(2)
    choices, margins = panels.weigh(x, None)
    assert torch.equal(choices, best.indices[:, 0])
    assert torch.equal(margins, best.values[:, 0] - best.values[:, 1])
    assert torch.equal(panels.choose(x, None), choices)
    ids = torch.tensor([[0, 100], [17, 16]])
    assert torch.equal(panels.rows(ids), weight.plain()[ids])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_twin_computes_with_rounded_inputs(family: str) -> None:
    sizes = UNEVEN | {"layers": 1} | (BIASES if family == "qwen3" else {})
    config = tiny_config(family, **sizes)  # type: ignore[arg-type]
    native, plain = (LeanVerifier.from_config(config, native=n) for n in (True, False))
    lora, lengths = adapter_of(native), [9, 4]
    block = draft_block(torch.tensor([[3], [4]]), torch.tensor(lengths), BlockShape(6))
    for rows, adapter in ((block, lora), (chain(ids_of(2, 14), torch.tensor(lengths)), None)):
        found, reference, unrounded = (
            after(v, lengths, rows, adapter=adapter).logits
            for v in (native.rounded(), reference_of(plain), plain.rounded())
        )
        assert found is not None
        assert reference is not None
        assert unrounded is not None
        apart, away = ((found - other).abs().amax(-1) for other in (reference, unrounded))
        assert apart.median() < 1e-5  # in a few rows a number is rounded to the other side
        assert apart.mean() < 0.1 * away.mean()
        assert away.max() < 0.1 * unrounded.abs().max()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.usefixtures("threads")
def test_a_row_has_the_same_bits_at_every_width(family: str) -> None:
    twin = LeanVerifier.from_config(tiny_config(family, **UNEVEN)).rounded()  # type: ignore[arg-type]
    plain, wide = steps_and_passes(twin, range(1, 40))
    for width, logits in wide.items():
        assert torch.equal(logits, plain[:, :width]), width


def test_only_drafts_are_computed_so() -> None:
    verifier = LeanVerifier.from_config(tiny_config())
    int8 = LeanVerifier.from_config(tiny_config(), int8=True)
    drafter = Quantized.of(verifier)
    layer = MTPLayer.of(verifier).freeze(int8=True)
    for block, kind in (
        (drafter.twin.blocks[0], library.W8A8),
        (layer.block, library.W8A8),
        (int8.blocks[0], library.INT8),
        (verifier.blocks[0], library.FP32),
    ):
        for linear in block.linears.values():
            assert isinstance(linear, FrozenLinear)
            assert linear.panels is not None
            assert linear.panels.shape.kind == kind
    for model, kind in ((drafter.twin, library.W8A8), (int8, library.INT8)):
        assert model._head.panels is not None
        assert model._head.panels.shape.kind == kind


def test_where_the_processor_cannot_only_weights_are_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    kernels = library.kernels()
    assert isinstance(kernels, ctypes.CDLL)
    assert library.draft_kind() == (
        library.W8A8 if kernels.breakeven_multiplies_int8() else library.INT8
    )
    monkeypatch.setenv(library.SWITCH, "0")
    assert library.draft_kind() == library.INT8
