"""Loading by one name, and one-line errors for everything that can be wrong with a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.errors import ModelError
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.fallback import TransformersVerifier
from breakeven.verifier.load import load_verifier
from tiny import tiny_config, write_model


def word_model(folder: Path, family: str = "llama", vocab: int = 64) -> Path:
    """A complete model directory with a word tokenizer."""
    words = {f"w{i}": i for i in range(vocab)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")), eos_token="w2"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return write_model(folder, tiny_config(family, eos_token_id=3), tokenizer)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return word_model(tmp_path / "model")


def test_a_directory_loads_lean_with_its_identity(folder: Path) -> None:
    loaded = load_verifier(str(folder))
    assert isinstance(loaded.verifier, LeanVerifier)
    assert loaded.eos == {2, 3}  # the tokenizer's and the config's
    assert loaded.verifier.dtype is torch.float32
    again = load_verifier(str(folder))
    assert again.identity == loaded.identity


def test_lean_and_fallback_answer_the_same(folder: Path) -> None:
    asked = [Request("a", (5, 9, 11), 24), Request("b", (7,), 24)]
    answers = []
    for backend, kind in (("lean", LeanVerifier), ("transformers", TransformersVerifier)):
        loaded = load_verifier(str(folder), backend=backend)
        assert isinstance(loaded.verifier, kind)
        answers.append({c.id: c.tokens for c in generate(loaded.verifier, asked, batch=2)})
    assert answers[0] == answers[1]


def test_the_weights_hash_follows_the_values(folder: Path) -> None:
    before = load_verifier(str(folder)).identity
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][0] += 1
    save_file(tensors, file, metadata={"format": "pt"})
    after = load_verifier(str(folder)).identity
    assert before.weights_sha256 != after.weights_sha256
    assert before.tokenizer_sha256 == after.tokenizer_sha256


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def truncate_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def drop_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def edit_config(**values: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return edit


def pickled_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def larger_tokenizer(folder: Path) -> None:
    word_model(folder, vocab=80)


def garbled_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def no_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove("config.json"), r"no config\.json"),
        (remove("model.safetensors"), r"no \*\.safetensors"),
        (pickled_only, "pickled weights are not read"),
        (truncate_weights, "truncated or corrupt"),
        (drop_tensor, r"model\.layers\.1\.mlp\.up_proj\.weight"),
        (edit_config(intermediate_size=96), "config.json says"),
        (edit_config(model_type="no-such-model"), "not a model transformers knows"),
        (garbled_config, "not a model transformers knows"),
        (no_tokenizer, "no usable tokenizer"),
        (larger_tokenizer, "another model's tokenizer"),
    ],
)
def test_damage_is_named_in_one_line(
    folder: Path, damage: Callable[[Path], None], words: str
) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=words) as caught:
        load_verifier(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smollm", "give a bundled name"),
        ("./nowhere", "no such model"),
        ("nowhere.gguf", "no such GGUF file"),
        ("some-org/some-model", "the hub did not give it"),
    ],
)
def test_names_that_lead_nowhere(name: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load_verifier(name)


def test_a_broken_gguf_file(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(ModelError, match="not readable as a GGUF model"):
        load_verifier(str(file))
    assert not list((tmp_path / "cache" / "models").iterdir())  # nothing half-made stays


def test_the_gguf_readers_own_bar_is_kept_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Conversion shows one progress line of ours, and not tqdm's in between."""
    from transformers import modeling_gguf_pytorch_utils as reader

    from breakeven.verifier.sources import _no_other_bar

    bar = reader.tqdm  # type: ignore[attr-defined]
    with _no_other_bar():
        assert list(reader.tqdm(range(3), desc="Converting")) == [0, 1, 2]  # type: ignore[attr-defined]
    assert capsys.readouterr().err == ""
    assert reader.tqdm is bar  # type: ignore[attr-defined]


def test_a_rope_that_changes_with_length_goes_to_transformers_or_is_refused(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "m")
    edit_config(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})(folder)
    with pytest.raises(ModelError, match="backend auto or transformers"):
        load_verifier(str(folder), backend="lean")


def test_no_cuda_is_said_at_once(folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ModelError, match="no CUDA device"):
        load_verifier(str(folder), device="cuda")
    with pytest.raises(ModelError, match="mode 'graph': CUDA graphs need a CUDA device"):
        load_verifier(str(folder), mode="graph")
    with pytest.raises(ModelError, match=r"mode 'grap': .*graph"):
        load_verifier(str(folder), mode="grap")


def test_an_unknown_backend_is_named(folder: Path) -> None:
    with pytest.raises(ModelError, match="backend 'fast'"):
        load_verifier(str(folder), backend="fast")


def test_the_same_file_elsewhere_is_converted_once(tmp_path: Path) -> None:
    """Each environment has its own copy of the bundled model; they share what was made of it."""
    from breakeven.verifier.sources import END, _stamp

    here, there, other = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    here.write_bytes(b"head" + bytes(3 * END) + b"tail")
    there.write_bytes(here.read_bytes())
    other.write_bytes(b"head" + bytes(3 * END) + b"liat")
    assert _stamp(here) == _stamp(there)
    assert _stamp(here) != _stamp(other)


def test_a_hash_that_was_half_written_is_computed_anew(folder: Path, tmp_path: Path) -> None:
    expected = load_verifier(str(folder)).identity
    (memo,) = (tmp_path / "cache" / "identity").glob("*.txt")
    memo.write_text(memo.read_text()[:20])  # killed on the way
    assert load_verifier(str(folder)).identity == expected
    assert memo.read_text() == expected.weights_sha256
