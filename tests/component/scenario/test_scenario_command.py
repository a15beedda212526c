"""`manage.py scenario`: by the cluster as it is, and by a recorded Snapshot."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from policies import publishing
from policies.engine.decision import CompiledRevision
from scheduler import scenario
from scheduler.models import Decision
from tests.builders import make_assignment, make_rule_set
from tests.component.backtest.corpus import Corpus
from tests.component.pages import publish_all
from tests.component.scenario.cases import DEPLOYMENT, cluster, only_a
from tests.recording import History

pytestmark = pytest.mark.django_db


def test_the_command_says_it_for_people_and_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "live_snapshot", lambda *_: cluster())
    monkeypatch.setattr("scheduler.management.commands.scenario.live_snapshot", lambda *_: cluster())
    file, change = tmp_path / "web.json", only_a()
    file.write_text(json.dumps(DEPLOYMENT))
    out = StringIO()
    call_command("scenario", str(file), "--pods", "6", "--change", str(change), "--output", "json", stdout=out)
    found = json.loads(out.getvalue())
    assert (found["ok"], found["live"]["fits"], found["drafted"]["nodes"]) == (True, 6, {"n0": 2, "n2": 2})
    out = StringIO()
    call_command("scenario", str(file), "--pods", "6", "--change", str(change), stdout=out)
    lines = out.getvalue().splitlines()
    assert (
        "cpu requested, live: 0.0 % to 0.0 % before, 50.0 % to 100.0 % after; standard deviation 0.0 %, then 25.0 %"
        in lines
    )
    assert [line.split() for line in lines if line.startswith("n1")] == [["n1", "2", "0"]]


def test_a_recorded_snapshot_stands_in_for_the_cluster(tmp_path: Path) -> None:
    publish_all(make_rule_set("web"), make_assignment("all", "web"))
    history = History(tmp_path / "spool")
    Corpus(history, CompiledRevision(publishing.current_revision()), nodes=3).ask("first")
    history.settle()
    history.spool.close()
    file = tmp_path / "web.json"
    file.write_text(json.dumps(DEPLOYMENT))
    out = StringIO()
    decision = Decision.objects.order_by("sequence")[0]
    call_command("scenario", str(file), "--pods", "3", "--decision", str(decision.pk), "--output", "json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["live"]["nodes"] == {"n0000": 1, "n0001": 1, "n0002": 1}
    # Nobody watched volumes for these rules.
    assert "persistentvolumeclaims" in found["unknown"]
    out = StringIO()
    call_command("scenario", str(file), "--pods", "3", "--decision", str(decision.pk), stdout=out)
    assert f"What rules read of {', '.join(found['unknown'])} was not recorded: by that they refuse no node." in (
        out.getvalue().splitlines()
    )
    decision.chain = 99
    decision.save()
    for named, says in (
        (str(decision.pk), "the Snapshot that the Decision was made on is not there"),
        ("x", "no Decision has the id x"),
    ):
        with pytest.raises(CommandError, match=says):
            call_command("scenario", str(file), "--pods", "3", "--decision", named)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"gone\.yaml"):
        call_command("scenario", str(tmp_path / "gone.yaml"), "--pods", "3")
