"""Shared set-up: the tests run against this checkout, and Hypothesis draws the same examples on every machine."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("vflpriv", "vflpriv.accountants", "vflpriv.attacks", "vflpriv.audits", "vflpriv.training")

# The key by which stored results are known as one's own is kept in a folder of these tests.
_STATE = TemporaryDirectory(prefix="vflpriv-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name

settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("VFLPRIV_HYPOTHESIS", "default"))
# Hypothesis also tries constants of the modules that are loaded, and each worker has loaded others.
providers.is_local_module_file = lambda _: False


@pytest.fixture(autouse=True)
def _no_step_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that tests run write no step summary of the job that runs the tests."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture(autouse=True)
def _brief_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model completion, which is tried by default, takes a few steps in tests that do not ask how well it does."""
    completion = importlib.import_module("vflpriv.attacks.label.trained.completion")
    brief = completion.Completion(epochs=1, iterations=4)
    monkeypatch.setattr(completion.LabelCompletionPassive, "completion", brief)


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that lasts stays in this process, unless a test asks for workers: each would import torch for seconds."""
    monkeypatch.setattr("vflpriv.run.executors.local.cores", lambda: 1)


@pytest.fixture(autouse=True)
def _decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every report that an audit of a test makes is verified: its figures alone give its verdicts and sentences."""
    build = sys.modules.get("vflpriv.run.build")
    if build is None:  # tests that make no report start without what audits import
        return
    report, verify = build.Report, importlib.import_module("vflpriv.run.verify")

    def verified(**fields: object) -> object:
        made = report(**fields)
        assert verify.changed_verdicts(report.model_validate_json(made.to_json())) == []
        return made

    monkeypatch.setattr(build, "Report", verified)


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small forests learn the scores of whole views, in tests that do not ask how well: they are most of an audit."""
    monkeypatch.setattr("vflpriv.audits.learned.learners._TREES", 4)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_configure() -> None:
    """Another copy of the package on the path would be tested in place of this one, and pass."""
    for package in PACKAGES:
        found = importlib.import_module(package).__file__
        wanted = ROOT / package.removeprefix("vflpriv.")
        if found is None or Path(found).resolve().parent != wanted:
            raise pytest.UsageError(f"Expected {package} to come from {wanted}, found {found}: pip install -e . here.")
