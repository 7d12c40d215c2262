"""The table of other people's code is what the tracer says of it today."""

from __future__ import annotations

import pytest

from tests.docs import others_code
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "what-a-trace-proves.md").read_text("utf-8")


@pytest.mark.filterwarnings("ignore")
def test_the_table_of_other_peoples_code_is_what_the_tracer_says() -> None:
    pytest.importorskip("opacus")
    kept = PAGE.split(others_code.START)[1].split(others_code.END)[0].strip()
    assert kept == others_code.table()


@pytest.mark.filterwarnings("ignore")
def test_the_expected_batch_size_of_opacus_follows_the_size_of_the_data() -> None:
    pytest.importorskip("opacus")
    first, second = others_code.expected_batch_sizes()
    assert first != second
