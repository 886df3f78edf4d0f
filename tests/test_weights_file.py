"""Trained weights that are torn, of another kind or no numbers are one line, and never reach in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.cost.profile import read_rates
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters import registry
from breakeven.drafters.bonus import BONUS_FILE, BonusCorrection
from breakeven.drafters.card import CARD_FILE
from breakeven.drafters.fastmtp import WEIGHTS_FILE, FastMTP
from breakeven.drafters.fused import Fused
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.tree import Tree
from breakeven.errors import DataError, DrafterError
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.lora import ADAPTER_FILE, CONFIG_FILE, MASK_FILE, RowLoRA
from breakeven.verifier.rows import BlockShape, chain, with_groups
from breakeven.verifier.weights_file import LARGEST
from tiny import tiny_verifier
from tiny_chat import tiny_loaded

FILES = {
    ADAPTER_FILE: ("peft-bd-gated", "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"),
    MASK_FILE: ("peft-bd-gated", "mask_vector"),
    BONUS_FILE: ("peft-bd-fused", "up.weight"),
    WEIGHTS_FILE: ("fastmtp", "block.linears.down.weight"),
}
"""What each method trains -> the method, and a tensor in it."""


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """A folder of each method, ready to be broken."""
    verifier = tiny_loaded().verifier
    for name in ("peft-bd-gated", "peft-bd-fused"):
        GatedPeftBD.untrained(verifier, 4).save(tmp_path / name)
    BonusCorrection(verifier.shape.hidden_size, 4).save(tmp_path / "peft-bd-fused")
    drafter = registry.untrained("fastmtp", verifier, 4)
    assert isinstance(drafter, FastMTP)
    drafter.save(tmp_path / "fastmtp")
    return {file: tmp_path / method for file, (method, _) in FILES.items()}


def refused(file: str, folder: Path, says: str) -> None:
    with pytest.raises(DrafterError, match=says) as found:
        registry.create(FILES[file][0], tiny_loaded(), folder)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("value", [math.nan, -math.inf, 1e39, -1001.0])
@pytest.mark.parametrize("file", FILES)
def test_a_number_that_is_not_finite_or_huge_is_refused(
    folders: dict[str, Path], file: str, value: float
) -> None:
    folder, key = folders[file], FILES[file][1]
    tensors = load_file(folder / file)
    broken = tensors[key].double()
    broken.view(-1)[1] = value
    save_file({**tensors, key: broken}, folder / file)
    refused(file, folder, f"tensor '{key}' holds numbers that are not finite or beyond 1000")


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_weights_leave_the_output_as_it_is(dtype: torch.dtype, static: bool) -> None:
    eager = tiny_verifier(dtype=dtype)
    verifier = GraphVerifier(eager, capture=False) if static else eager
    drafter = GatedPeftBD.untrained(verifier, 4)
    with torch.no_grad():
        for weight in drafter.adapter.parameters():
            weight.fill_(LARGEST)
    asked = [Request(str(i), tuple(range(i, 9 + i)), 12) for i in range(3)]
    plain = {c.id: c.tokens for c in generate(eager, asked)}
    for own in (drafter, Fused(drafter.adapter, drafter.plan), Tree(drafter)):
        found = generate(verifier, asked, drafter=own, k=4, batch=2)
        assert {c.id: c.tokens for c in found} == plain


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_torn_lacks_a_tensor_or_has_another_is_refused(
    folders: dict[str, Path], file: str
) -> None:
    folder, key = folders[file], FILES[file][1]
    path = folder / file
    whole, tensors = path.read_bytes(), load_file(path)
    for size in (0, 7, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(file, folder, f"{file}: cannot be read .*train or copy it again")
    for other, says in (
        (torch.tensor(1.0), r"has shape \[\], this verifier needs"),
        (tensors[key][:0].clone(), r"has shape \[0.*\], this verifier needs"),
        (torch.cat((tensors[key], tensors[key])), r"has shape .*, this verifier needs"),
        (tensors[key].long(), "holds int64, not float32"),
        (tensors[key] > 0, "holds bool, not float32"),
    ):
        save_file({**tensors, key: other}, path)
        refused(file, folder, f"tensor '{key}' {says}")
    save_file({"another": tensors[key]}, path)
    refused(file, folder, "tensor '.*' is missing")


@pytest.mark.parametrize("shape", [(), (0,), (4,), (4, 7), (0, 64)])
def test_a_module_of_no_rank_is_refused(folders: dict[str, Path], shape: tuple[int, ...]) -> None:
    path = folders[BONUS_FILE] / BONUS_FILE
    save_file({**load_file(path), "down.weight": torch.zeros(shape)}, path)
    refused(BONUS_FILE, path.parent, r"tensor 'down\.weight' has shape")


@pytest.mark.parametrize("kind", [torch.float32, torch.uint8, torch.bool])
def test_a_vocabulary_of_no_ids_is_refused(folders: dict[str, Path], kind: torch.dtype) -> None:
    path = folders[WEIGHTS_FILE] / WEIGHTS_FILE
    tensors = load_file(path)
    save_file({**tensors, "vocabulary": tensors["vocabulary"].to(kind)}, path)
    refused(WEIGHTS_FILE, path.parent, "tensor 'vocabulary' holds|the ids of a draft vocabulary")


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("layers_to_transform", [], "layers_to_transform = .*give some of the layers 0 to 1"),
        ("layers_to_transform", [2], "layers_to_transform = .*give some of the layers 0 to 1"),
        ("layers_to_transform", [-1], "layers_to_transform = .*give some of the layers 0 to 1"),
        ("layers_to_transform", ["0"], "layers_to_transform = .*give some of the layers 0 to 1"),
        ("layers_to_transform", "all", "layers_to_transform = .*give some of the layers 0 to 1"),
        ("layers_to_transform", 5, "layers_to_transform = .*give some of the layers 0 to 1"),
        ("layers_to_transform", {}, "layers_to_transform = .*give some of the layers 0 to 1"),
        ("r", 10**12, "r = 1000000000000, .*: a rank is 1 to 64 here"),
        ("r", 1e400, "cannot be read"),
        ("lora_alpha", math.nan, ".* and alpha a number above 0"),
        ("lora_alpha", math.inf, ".* and alpha a number above 0"),
        ("lora_alpha", 10**400, "cannot be read"),
        ("use_rslora", True, "use_rslora is set, which is not computed here"),
        ("use_dora", True, "use_dora is set, which is not computed here"),
        ("rank_pattern", {"q_proj": 4}, "rank_pattern is set, which is not computed here"),
    ],
)
def test_a_config_that_cannot_be_is_refused(
    folders: dict[str, Path], setting: str, value: Any, says: str
) -> None:
    path = folders[ADAPTER_FILE] / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), setting: value}))
    refused(ADAPTER_FILE, path.parent, f"{CONFIG_FILE}: {says}")


def test_layers_are_taken_in_their_order_and_one_may_stand_alone(tmp_path: Path) -> None:
    verifier = tiny_verifier(layers=4)
    GatedPeftBD.untrained(verifier, 4).save(tmp_path)
    path = tmp_path / CONFIG_FILE
    for given, expected in (([3, 1, 1], (1, 3)), (2, (2,))):
        path.write_text(json.dumps({**json.loads(path.read_text()), "layers_to_transform": given}))
        loaded = RowLoRA.load(tmp_path, verifier.architecture, late=True)
        assert (loaded.layers, loaded.enter) == (expected, expected[0])


@pytest.mark.parametrize("method", ["hybrid", "tree"])
@pytest.mark.parametrize("card", ["hybrid", "tree", "ngram"])
def test_a_card_of_what_has_no_weights_is_no_endless_search(
    tmp_path: Path, method: str, card: str
) -> None:
    (tmp_path / CARD_FILE).write_text(json.dumps({"drafter": card}))
    with pytest.raises(DrafterError, match=f"'{card}' is no trained drafter"):
        registry.create(method, tiny_loaded(), tmp_path)


@pytest.mark.parametrize("method", ["hybrid", "fastmtp"])
def test_a_card_nested_too_deeply_is_one_line(tmp_path: Path, method: str) -> None:
    (tmp_path / CARD_FILE).write_text('{"drafter": ' + "[" * 200_000)
    with pytest.raises(DrafterError, match="not a drafter's card"):
        registry.create(method, tiny_loaded(), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"conditional_accept_rates": [1' + "0" * 400 + "]}",
        '{"conditional_accept_rates": [0.5], "num_speculative_tokens": 1, '
        '"measurement_conditions": {"verify_width": Infinity}}',
        "[" * 200_000,
    ],
)
def test_a_profile_with_numbers_beyond_all_bounds_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(DataError, match="not a speculation profile"):
        read_rates(tmp_path / "p.json")


@pytest.mark.parametrize("static", [False, True])
def test_in_fp16_an_adapter_out_of_range_does_not_reach_the_chain(static: bool) -> None:
    """Its masks overflow; the rows of the chain, which do not see them, are as they were."""
    verifier = tiny_verifier(dtype=torch.float16, layers=3)
    if static:
        verifier = GraphVerifier(verifier, capture=False)
    drafter = GatedPeftBD.untrained(verifier, 4)
    with torch.no_grad():
        for name, weight in drafter.adapter.named_parameters():
            if ".up." in name:
                weight.normal_(0.0, 30_000.0, generator=torch.Generator().manual_seed(0))
    cache = verifier.new_cache(1, 64)
    rows = chain(torch.tensor([[5, 2, 9, 4]]), cache.lengths)
    with torch.inference_mode():
        plain = verifier.run(Phase.VERIFY, rows, cache, Ledger())
        fused = verifier.run(
            Phase.VERIFY,
            with_groups(rows, BlockShape(3), 2),
            cache,
            Ledger(),
            adapter=drafter.adapter,
        )
        after = verifier.run(Phase.VERIFY, rows, cache, Ledger())
    assert not fused.hidden[:, 4:].isfinite().all()
    assert torch.allclose(fused.hidden[:, :4], plain.hidden, atol=0.02)
    assert torch.equal(after.hidden, plain.hidden)


@pytest.mark.parametrize("static", [False, True])
def test_only_the_adapters_rows_are_kept_in_range(
    static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large numbers of the verifier's own are left as they are, as in a plain step."""
    monkeypatch.setattr("breakeven.verifier.block.FARTHEST", 0.01)
    verifier = tiny_verifier(dtype=torch.float16, layers=3)
    if static:
        verifier = GraphVerifier(verifier, capture=False)
    drafter = GatedPeftBD.untrained(verifier, 4)
    cache = verifier.new_cache(1, 64)
    rows = chain(torch.tensor([[5, 2, 9, 4]]), cache.lengths)
    layout = with_groups(rows, BlockShape(3), 2)
    with torch.inference_mode():
        plain = verifier.run(Phase.VERIFY, rows, cache, Ledger())
        bounded = verifier.run(Phase.VERIFY, layout, cache, Ledger(), adapter=drafter.adapter)
        monkeypatch.undo()
        free = verifier.run(Phase.VERIFY, layout, cache, Ledger(), adapter=drafter.adapter)
    assert torch.allclose(bounded.hidden[:, :4], plain.hidden, atol=0.02)
    assert not torch.allclose(bounded.hidden[:, 4:], free.hidden[:, 4:], atol=0.02)
