"""Sizes against the caches transformers really fills, and the verdicts of the doctor."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from cachefriendly import doctor
from cachefriendly.compat_transformers import cache_argument
from cachefriendly.errors import ConfigError
from cachefriendly.size import KvLayer, KvSize, kv_size
from cachefriendly.testing import ARCHITECTURES, byte_tokenizer, tiny_model

TOKENS = 40


def saved(folder, model, tokenizer=None):
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return str(folder)


def real_bytes(model, tokens):
    """What a cache holds after really running the model, windowed layers cut to their window."""
    cache = DynamicCache()
    ids = torch.zeros(1, tokens, dtype=torch.long)
    with torch.inference_mode():
        model(input_ids=ids, use_cache=True, **{cache_argument(model): cache})
    kinds = getattr(model.config, "layer_types", None) or ["full_attention"] * len(cache.layers)
    if model.config.model_type == "mistral":
        kinds = ["sliding_attention"] * len(cache.layers)
    total = 0
    for layer, kind in zip(cache.layers, kinds, strict=True):
        kept = min(tokens, 8) if kind == "sliding_attention" else tokens
        total += (layer.keys.nbytes + layer.values.nbytes) // tokens * kept
    return total


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_size_is_what_a_real_cache_holds(name, tmp_path):
    model = tiny_model(name)
    assert kv_size(saved(tmp_path, model)).bytes_at(TOKENS) == real_bytes(model, TOKENS)


def test_the_article_formula_holds_for_plain_models(tmp_path):
    # 2 x layers x kv heads x head dim x bytes
    path = saved(tmp_path, tiny_model("llama"))
    assert kv_size(path).bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert kv_size(path, dtype="bfloat16").bytes_per_token == 2 * 2 * 2 * 16 * 2


def test_windowed_layers_stop_growing():
    size = KvSize("X", "float32", (KvLayer(2, 10, None), KvLayer(3, 10, 8)))
    assert size.bytes_per_token == 50
    assert size.bytes_at(8) == 8 * 50
    assert size.bytes_at(100) == 100 * 20 + 8 * 30


@pytest.mark.parametrize("dtype", ["float33", "Tensor", ""])
def test_an_unknown_dtype_is_refused(dtype, tmp_path):
    with pytest.raises(ConfigError, match=f"dtype='{dtype}' is unknown"):
        kv_size(saved(tmp_path, tiny_model()), dtype=dtype)


def verdicts(checks):
    return {check.name: check for check in checks}


def test_doctor_passes_the_installation_the_tests_run_in():
    checks = verdicts(doctor.check_installation())
    assert not [check for check in checks.values() if check.verdict == "fail"]
    assert checks["torch"].found == torch.__version__
    assert checks["extra demo"].verdict == "ok"


def test_doctor_names_the_command_for_what_is_missing(monkeypatch):
    real = doctor._version
    absent = {"safetensors", "llguidance"}
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in absent else real(name))
    checks = verdicts(doctor.check_installation())
    assert (checks["safetensors"].verdict, checks["extra grammar"].verdict) == ("fail", "note")
    assert checks["extra grammar"].advice == "pip install 'cachefriendly[grammar]'"


def test_doctor_passes_a_llama(tmp_path):
    checks = verdicts(doctor.check_model(saved(tmp_path, tiny_model(), byte_tokenizer())))
    assert {check.verdict for check in checks.values()} == {"ok"}
    assert checks["chat template"].found == "turns are marked by control tokens"
    assert "knows no tools" in checks["tools"].found


def test_doctor_refuses_a_model_that_is_not_exact(tmp_path):
    path = saved(tmp_path, tiny_model("bert", is_decoder=False), byte_tokenizer())
    check = verdicts(doctor.check_model(path))["architecture"]
    assert check.verdict == "fail"
    assert "Bert" in check.advice


def test_doctor_says_why_a_model_runs_row_by_row(tmp_path):
    path = saved(tmp_path, tiny_model("bloom"), byte_tokenizer())
    check = verdicts(doctor.check_model(path))["architecture"]
    assert check.verdict == "note"
    assert "fallback runner" in check.found
    assert "attention interface" in check.advice


def test_doctor_says_when_turns_are_plain_text(tmp_path):
    template = (
        "{% for message in messages %}### {{ message.role }}: {{ message.content }}{% endfor %}"
    )
    path = saved(tmp_path, tiny_model(), byte_tokenizer(template))
    check = verdicts(doctor.check_model(path))["chat template"]
    assert (check.verdict, check.found) == ("note", "turns are marked by plain text")
    assert "forge" in check.advice


def test_doctor_fails_a_model_without_chat_template(tmp_path):
    path = saved(tmp_path, tiny_model(), byte_tokenizer(None))
    assert verdicts(doctor.check_model(path))["chat template"].verdict == "fail"
