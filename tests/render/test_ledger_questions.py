"""The ledger file that an audit writes asks about state that noised messages may depend on."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace

import pytest

from vflpriv.render.formats.toml import TomlFormat
from vflpriv.report.formats import Context

NOISED = {"kind": "embeddings", "noise": "gaussian", "scale": 2.0, "leak": None, "once": False}


@pytest.mark.parametrize(
    ("change", "asked"),
    [({}, True), ({"leak": "none"}, False), ({"noise": "none", "scale": None}, False), ({"once": True}, False)],
)
def test_a_noised_kind_without_a_word_on_leaks_is_asked_about(change, asked):
    text = TomlFormat().render(SimpleNamespace(config={"key": "own", "release": [NOISED | change]}), Context())
    assert ("# embeddings: does it depend on state that raw data changed without noise" in text) == asked
    assert tomllib.loads(text)["release"][0]["kind"] == "embeddings"
