"""`cachefriendly templates`: findings for people and for machines, and what it is pointed at."""

from __future__ import annotations

import json

import pytest

from cachefriendly.cli import main
from cachefriendly.testing import byte_tokenizer

CHATML = byte_tokenizer().chat_template


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plain.jinja").write_text(CHATML)
    (tmp_path / "refuses.jinja").write_text("{{ raise_exception('no conversation') }}")
    return tmp_path


def test_a_folder_is_a_finding_per_template_and_a_refusal_is_said(folder, capsys):
    assert main(["templates", str(folder), "--json"]) == 1
    plain, refuses = json.loads(capsys.readouterr().out)["templates"]
    assert (plain["name"], plain["stable"], plain["error"]) == ("plain", True, "")
    assert set(plain["kept"]) == {"exact", "template", "append"}
    assert (refuses["name"], refuses["stable"]) == ("refuses", False)
    assert "no conversation" in refuses["error"]


def test_one_file_is_a_row(folder, capsys):
    assert main(["templates", str(folder / "plain.jinja")]) == 0
    out = capsys.readouterr().out
    assert "plain" in out
    assert "stable" in out
    assert "100%" in out
