"""`cachefriendly templates` as people and programs use it, on templates of this project."""

from __future__ import annotations

import json

import pytest

from cachefriendly.cli import main
from cachefriendly.testing import byte_tokenizer, templates


@pytest.fixture
def folder(tmp_path):
    for name in ("NATIVE_TOOLS", "REASONING_DROPPED"):
        (tmp_path / f"{name}.jinja").write_text(getattr(templates, name), encoding="utf-8")
    return tmp_path


def test_a_folder_is_a_table_with_a_row_each(folder, capsys):
    assert main(["templates", str(folder)]) == 0
    out = capsys.readouterr().out
    native, dropped = (
        next(line for line in out.splitlines() if line.startswith(name))
        for name in ("NATIVE_TOOLS", "REASONING_DROPPED")
    )
    assert "stable" in native
    assert native.split()[-3] == native.split()[-1] == "100%"
    assert "reasoning of earlier replies is dropped" in dropped
    assert dropped.split()[-3] != "100%"
    assert "NATIVE_TOOLS has no form of its own for: reasoning" in out


def test_one_file_for_machines(folder, capsys):
    assert main(["templates", str(folder / "NATIVE_TOOLS.jinja"), "--json"]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["templates"]
    assert finding["name"] == "NATIVE_TOOLS"
    assert finding["stable"]
    assert all(kept == held for kept, held in finding["kept"]["append"])


def test_the_template_of_a_model(tmp_path, capsys):
    byte_tokenizer(templates.CHATML).save_pretrained(tmp_path)
    assert main(["templates", str(tmp_path)]) == 0
    assert "stable" in capsys.readouterr().out


def test_a_template_that_refuses_is_code_1(tmp_path, capsys):
    path = tmp_path / "no.jinja"
    path.write_text("{{ raise_exception('never') }}", encoding="utf-8")
    assert main(["templates", str(path)]) == 1
    assert "refuses: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("nothing.jinja", "there is no file nothing.jinja"),
        ("no/such-model", "'no/such-model' is no local path"),
    ],
)
def test_what_is_not_there_is_one_line_and_code_2(wrong, said, capsys):
    assert main(["templates", wrong]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"cachefriendly templates: {said}")
    assert error.count("\n") == 1
