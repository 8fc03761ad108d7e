"""The command line as people and programs use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cachefriendly.cli import main
from cachefriendly.testing import byte_tokenizer, tiny_model


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model("gemma2").save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def test_the_installed_command_answers():
    command = Path(sys.executable).with_name("cachefriendly")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("0.")


@pytest.mark.parametrize("command", ["doctor", "size"])
def test_help_shows_examples(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"examples:\n  cachefriendly {command}" in capsys.readouterr().out


def test_size_for_people(model_path, capsys):
    assert main(["size", model_path, "--tokens", "100"]) == 0
    out = capsys.readouterr().out
    assert "Gemma2ForCausalLM, float32: 512 bytes per token" in out
    assert "1 layers x 256 bytes, the last 8 tokens" in out


def test_size_for_machines(model_path, capsys):
    assert main(["size", model_path, "--json", "--tokens", "100", "--tokens", "4"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bytes_per_token"] == 512
    assert result["bytes_at"] == {"100": 100 * 256 + 8 * 256, "4": 4 * 512}


def test_doctor_for_machines(model_path, capsys):
    assert main(["doctor", model_path, "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {"python", "torch", "architecture", "chat template"} <= {c["name"] for c in checks}


def test_doctor_for_people_ends_with_1_when_a_check_fails(tmp_path, capsys):
    tiny_model("llama").save_pretrained(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    assert main(["doctor", str(tmp_path)]) == 1
    assert "\nfail chat template" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["size", "doctor", "templates"])
@pytest.mark.parametrize("path", ["./no-such-model", "/no/where"])
def test_a_path_to_nothing_is_one_line_and_code_2(command, path, capsys):
    assert main([command, path]) == 2
    said = f"cachefriendly {command}: there is nothing at {path!r}; give a model's folder or hub id"
    assert capsys.readouterr().err == said + "\n"


def test_an_unknown_dtype_is_code_2(model_path, capsys):
    assert main(["size", model_path, "--dtype", "float33"]) == 2
    assert "dtype='float33' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["size", "x", "--tokens", "0"], ["fly"], [], ["size"]])
def test_wrong_arguments_are_refused(wrong, capsys):
    with pytest.raises(SystemExit) as end:
        main(wrong)
    assert end.value.code == 2
    assert "usage: cachefriendly" in capsys.readouterr().err
