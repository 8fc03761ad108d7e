"""The LangChain guide is complete: no public name without its place in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cachefriendly_lc

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "langchain.md").read_text()
BLOCKS = "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", cachefriendly_lc.__all__)
def test_the_guide_uses_every_public_name(name: str) -> None:
    assert re.search(rf"\b{name}\b", BLOCKS)
