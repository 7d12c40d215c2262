"""A new engine is one file: a package of someone else's trains, is attacked, audited and accounted for like ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.seams.plugins import Plugin
from tests.tree import ROOT

pytestmark = pytest.mark.usefixtures("few_trees")
SIGNS = (ROOT / "examples" / "engine_package" / "vflpriv_sign_split.py").read_text("utf-8")
NOISED_SUM = '''
    """Summed logits with noise on them: a release point of the base class is all that audits need."""

    from vflpriv.training.engines.split import Split

    class NoisedSum(Split):
        """Split learning under another name."""

        name = "noised-sum"
        summary = "split learning from elsewhere"
        source = "a test"
'''


def audited(plugin: Plugin, engine: str, **options: object) -> dict[str, object]:
    """The report of an audit of this engine, and the exit code."""
    settings = {"rounds": 12, "batch_size": 16, "embedding": 3} | options
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    config = ["[data]", 'name = "digits"', "devices = 2", "train = 80", "[engine]", f'name = "{engine}"', *lines]
    (plugin.folder / "audit.toml").write_text("\n".join([*config, "[audit]", "trials = 8"]), encoding="utf-8")
    done = plugin.command("audit", "audit.toml", "--quiet", "--out", "out", "--format", "json")
    assert done.returncode in (0, 1, 3), done.stderr
    report: dict[str, object] = json.loads((plugin.folder / "out" / "report.json").read_text("utf-8"))
    return report


@pytest.fixture
def signs(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path, "vflpriv.engines", "SignSplit", SIGNS)


def test_its_claims_about_attacks_are_judged(signs: Plugin) -> None:
    assert "sign-split" in signs.command("engines").stdout
    (system,) = audited(signs, "sign-split")["systems"]
    assert system["engine"] == "sign-split"
    (claim,) = system["success_claims"]
    assert claim["verdict"] == "violated"


def test_what_it_releases_through_a_release_point_is_heard_by_every_audit(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, "vflpriv.engines", "NoisedSum", NOISED_SUM)
    report = audited(plugin, "noised-sum", aggregation="sum", protection="embedding", noise_std=1.5)
    (system,) = report["systems"]
    assert {check["audit"] for check in system["checks"]} == {"wire", "sensitivity", "noise", "float", "server-state"}
    assert [check["verdict"] for check in system["checks"] if check["audit"] == "noise"] == ["consistent"]
    assert system["budgets"]
    assert any(attack["success"] is not None for attack in system["attacks"])


LABELS_IN_CLEAR = '''
    """A sound engine that also sends the labels of every batch, which its ledger does not mention."""

    from vflpriv.core.wire import Payload
    from vflpriv.training.engines.dpzv import Dpzv

    class InClear(Dpzv):
        """DPZV with the labels of the batch in every reply."""

        name = "in-clear"
        summary = "sends labels"
        source = "a test"

        def serve(self, round_, records, uplinks):
            replies = super().serve(round_, records, uplinks)
            labels = self.data.labels_of(records).expand(len(self.replicas), -1).clone()
            return {m: Payload(p.kind, {**p.tensors, "y": labels}) for m, p in replies.items()}
'''


def test_labels_in_clear_do_not_pass(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, "vflpriv.engines", "InClear", LABELS_IN_CLEAR)
    report = audited(plugin, "in-clear", server_update="joint", noise="calibrated", epsilon=8.0)
    assert report["exit_code"] == 1
    (system,) = report["systems"]
    (claim,) = system["claims"]
    assert claim["verdict"] == "violated"
    assert "one record's label moves tensor y of zo-scalar messages" in claim["reason"]
    assert claim["accounted"]["epsilon_upper"] in (None, "Infinity", float("inf"))
    (undeclared,) = [r for r in system["releases"] if r["what"] == "tensor y: on the wire, but not in the ledger"]
    assert undeclared["noise"] == "no noise"
