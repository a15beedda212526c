"""Revisions and Changes in archives of evidence: proved by their events, or named."""

import io
import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from policies import publishing
from policies.engine.objects.pod import Pod
from policies.models import Change
from scheduler.evidence import export as exporting
from scheduler.evidence.export import export
from scheduler.evidence.selection import Case
from scheduler.history.pruning import Retention, prune
from scheduler.ledger.checkpoints import sign_checkpoints
from scheduler.models import Decision
from tests.archives import Files, asked, berth_verify, check, exported, packed, signed_anew, unpacked
from tests.builders import TEAM_FILTER, make_assignment, make_pod, make_rule_set
from tests.component.pages import opened, publish_all
from tests.component.policies.people import person
from tests.ledgers import AT, SIGNER, Ledgered, without_triggers
from tests.recording import Prepared

pytestmark = pytest.mark.django_db


@pytest.fixture
def decided(history: Ledgered) -> Files:
    """Return an archive of a day: it has a Change that carol approved, whose Revision decided, and a Pause of other rules."""
    publish_all(make_rule_set("others"))
    change = opened(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment("all", "web"), by="alice", title="web")
    publishing.submit_change(change=change, by="alice", expected_digest=change.digest)
    carol = person("carol", "Approver")
    publishing.approve_change(change=change, by=carol, text="seen", expected_digest=change.digest)
    revision = publishing.publish_change(change=change, by="alice", expected_digest=change.digest, reason="now")
    publishing.pause(target="RuleSet/others", reason="INC-1", by="alice")
    Decision.objects.filter(ledger_index=3).update(revision=revision.number, body=b"")
    return exported(Case(first=AT, until=AT + timedelta(days=1)))


def test_rules_and_approvals_are_those_that_were_noted(decided: Files, tmp_path: Path) -> None:
    faults, _logs = check(packed(decided, tmp_path / "e.tar"))
    assert [fault for fault in faults if not fault.startswith("decisions.")] == []


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("revisions.jsonl", '"madeBy":"alice"', '"madeBy":"eve"', "Revision 2 isn't what an event noted when it was made"),
        ("revisions.jsonl", '"reason":"now"', '"reason":"later"', "Revision 2 isn't what an event noted when it was made"),
        ("revisions.jsonl", '"createdAt":"20', '"createdAt":"19', "Revision 2 isn't of the number or the time"),
        ("revisions.jsonl", '"reason":"node belongs to another team"', '"reason":"no"', "Revision 2 doesn't hold what its digest was taken over"),
        ("revisions.jsonl", '\\"former\\":', '\\"other\\":', "Revision 2 isn't what its digest was taken over"),
        ("parts.jsonl", "node belongs to another team", "no", "it isn't what its digest was taken over"),
        ("changes.jsonl", '"by":"carol"', '"by":"dave"', ", 'approve', 'carol', 'seen'"),
        ("changes.jsonl", '"title":"web"', '"title":"none"', "isn't called as any event of it says"),
        ("changes.jsonl", '"openedBy":"alice"', '"openedBy":"dave"', "wasn't opened by who an event says"),
        ("changes.jsonl", "node belongs to another team", "no", "doesn't make what an event says that it made"),
        ("changes.jsonl", '"edits":[', '"edits":[{"kind":"RuleSet","name":"web","document":"{}","author":"alice","edited_at":""},', "doesn't make what an event says that it made"),
        ("changes.jsonl", '"state":"published"', '"state":"rejected"', "is published by what events say of it, and not rejected"),
        ("changes.jsonl", '"revision":2', '"revision":2,"approvedBy":["eve"]', "approvedBy stands there, which Berth doesn't write"),
        ("changes.jsonl", '"text":"seen"', '"text":"seen","seenBy":"eve"', "seenBy stands there, which Berth doesn't write"),
        ("changes.jsonl", '"author":"alice"', '"author":"alice","size":1', "size stands there, which Berth doesn't write"),
        ("changes.jsonl", '"reason":"",', "", "reason is missing there"),
        ("changes.jsonl", '"revision":2,"digest":"', '"revision":2,"digest":"0', "has another content than the last act on it had"),
        ("ledger/events/checkpoints.jsonl", '{"at"', '{"by":"eve","at"', "by stands there, which Berth doesn't write"),
        ("revisions.jsonl", '"document":{', '"document":{"signedOffBy":"eve",', "signedOffBy stands there, which Berth doesn't write"),
        ("revisions.jsonl", '"number":2,', '"number":2,"signedOffBy":"eve",', "signedOffBy stands there, which Berth doesn't write"),
        ("revisions.jsonl", '"publishedAt":"20', '"publishedAt":"19', "Revision 2 isn't of the number or the time"),
        ("parts.jsonl", '{"digest"', '{"by":"eve","digest"', "by stands there, which Berth doesn't write"),
        ("changes.jsonl", '"events":[', '"events":[{"act":"approve","by":"eve","at":"2026-01-01T00:00:00Z","digest":"","text":""},', ", 'approve', 'eve'"),
    ],
)  # fmt: skip
def test_rules_and_approvals_that_an_insider_changed_are_named(
    decided: Files, tmp_path: Path, name: str, before: str, after: str, said: str
) -> None:
    assert before in decided[name].decode()
    decided[name] = decided[name].decode().replace(before, after, 1).encode()
    signed_anew(decided, SIGNER)
    assert any(said in fault for fault in check(packed(decided, tmp_path / "e.tar"))[0])


@pytest.mark.parametrize("name", ["revisions.jsonl", "ledger/decisions/checkpoints.jsonl"])
def test_a_time_that_an_insider_puts_into_another_zone_is_named(decided: Files, tmp_path: Path, name: str) -> None:
    lines = decided[name].decode().splitlines(keepends=True)
    row = json.loads(lines[-1])
    member = "createdAt" if "createdAt" in row else "at"
    row[member] = row[member][:-1] + "-11:00"
    decided[name] = "".join([*lines[:-1], json.dumps(row) + "\n"]).encode()
    signed_anew(decided, SIGNER)
    assert any("is no time as Berth writes it" in fault for fault in check(packed(decided, tmp_path / "e.tar"))[0])


def test_a_revision_that_comes_twice_is_named(decided: Files, tmp_path: Path) -> None:
    lines = decided["revisions.jsonl"].decode().splitlines(keepends=True)
    again = json.loads(lines[-1]) | {"summary": "nothing"}
    decided["revisions.jsonl"] = "".join([*lines, json.dumps(again) + "\n"]).encode()
    signed_anew(decided, SIGNER)
    assert f"revisions.jsonl: Revision {again['number']} comes twice" in check(packed(decided, tmp_path / "e.tar"))[0]


@pytest.mark.parametrize(("name", "thing"), [("changes.jsonl", "Change"), ("revisions.jsonl", "Revision")])
def test_a_change_or_a_revision_that_an_insider_left_out_is_named(
    history: Ledgered, tmp_path: Path, name: str, thing: str
) -> None:
    publish_all(make_rule_set("others"))
    change = opened(make_rule_set("web"), title="web")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    file = io.BytesIO()
    export(Case(), file, by="auditor", now=timezone.now() + timedelta(minutes=5))
    files = unpacked(file)
    assert check(packed(files, tmp_path / "whole.tar"))[0] == []
    files[name] = b"".join(files[name].splitlines(keepends=True)[:-1])
    signed_anew(files, SIGNER)
    faults, _logs = check(packed(files, tmp_path / "e.tar"))
    number = change.pk if thing == "Change" else 2
    said = f"{name}: {thing} {number} was left out: an event says that Change {change.pk} made Revision 2"
    assert faults == [said]


def test_what_is_published_while_an_archive_is_made_is_not_proved_where_it_is_left_out(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_changes = exporting._Export.write_changes

    def published_behind(export: Any) -> None:
        write_changes(export)
        publish_all(make_rule_set("web"))

    monkeypatch.setattr(exporting._Export, "write_changes", published_behind)
    done = asked(packed(exported(), tmp_path / "e.tar"))
    number = Change.objects.get().pk
    assert (
        f"not proved: Change {number} isn't here, and an event says that Change {number} made Revision 1" in done.stdout
    )
    assert "WRONG" not in done.stdout
    assert "nothing wrong was found; 1 of " in done.stdout


def test_a_revision_by_which_decisions_were_made_and_that_is_left_out_is_not_proved(
    history: Ledgered, tmp_path: Path
) -> None:
    """Its Change may be left out with its events, too: an archive is a choice of events."""
    pod = Pod.from_json(make_pod("web"))
    revision: Any = SimpleNamespace(number=7, digest="")
    writer = history._writers[0]
    writer.recorder.record(Prepared(verb="bind", pod=pod, now=AT, revision=revision))
    writer.settle()
    done = asked(packed(exported(), tmp_path / "e.tar"))
    assert "not proved: Revision 7 isn't here, and Decisions were made by it" in done.stdout
    assert "nothing wrong was found; 1 of " in done.stdout


def test_a_change_that_is_said_to_be_published_with_another_content_than_was_approved_is_named(
    decided: Files, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in decided["changes.jsonl"].decode().splitlines()]
    change = next(row for row in lines if row["title"] == "web")
    change["events"][-1]["digest"] = change["digest"] = "0" * 64
    decided["changes.jsonl"] = "".join(json.dumps(row) + "\n" for row in lines).encode()
    signed_anew(decided, SIGNER)
    assert any("published with another content" in fault for fault in check(packed(decided, tmp_path / "e.tar"))[0])


@pytest.mark.parametrize(
    ("acts", "state"),
    [
        (["edit"], "draft"),
        (["submit"], "in_review"),
        (["submit", "edit"], "in_review"),
        (["submit", "approve"], "approved"),
        (["submit", "reject"], "rejected"),
        (["submit", "reject", "reopen"], "draft"),
        (["submit", "withdraw"], "withdrawn"),
        (["submit", "urgent", "approve"], "published"),
        (["publish", "comment"], "published"),
    ],
)
def test_the_state_of_a_change_is_one_that_what_was_done_with_it_leads_to(acts: list[str], state: str) -> None:
    others = {"draft", "in_review", "approved", "rejected", "withdrawn", "published"} - {state}
    assert state in berth_verify.states_after(["open", *acts])
    assert len(others & {*berth_verify.states_after(["open", *acts])}) == (state in berth_verify.IN_REVIEW)


def test_deletions_that_an_insider_adds_or_takes_out_are_named(history: Ledgered, tmp_path: Path) -> None:
    file, planted = (
        io.BytesIO(),
        '{"log":"decisions","what":"rows","first":0,"until":9,"rule":"x","at":"2026-01-01T00:00:00Z"}\n',
    )
    sign_checkpoints(AT)
    prune(Retention(0, 3), AT + timedelta(days=20))
    export(Case(), file, by="auditor", now=timezone.now() + timedelta(minutes=5))
    files = unpacked(file)
    assert len(files["pruned.jsonl"].splitlines()) == 1
    for changed, why in (
        (files["pruned.jsonl"] + planted.encode(), "line 2 is no deletion that a signed event says"),
        (files["pruned.jsonl"] * 2, "line 2 is no deletion that a signed event says"),
        (b"", "a deletion that a signed event says is missing: "),
    ):
        other = {**files, "pruned.jsonl": changed}
        signed_anew(other, SIGNER)
        (fault,), _logs = check(packed(other, tmp_path / "e.tar"))
        assert fault.startswith(f"pruned.jsonl: {why}")


def test_what_retention_deletes_while_an_archive_is_made_is_no_fault(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deletions = exporting._Export.write_deletions

    def deleted_behind(export: Any) -> None:
        write_deletions(export)
        prune(Retention(0, 3), AT + timedelta(days=20))

    monkeypatch.setattr(exporting._Export, "write_deletions", deleted_behind)
    files = exported()
    assert (files["pruned.jsonl"], check(packed(files, tmp_path / "e.tar"))[0]) == (b"", [])


def noted(files: Files, path: Path) -> Any:
    with berth_verify.Archive(str(packed(files, path))) as archive:
        found = berth_verify.Check(archive, berth_verify.read_keys(f"{SIGNER.verifier}\n"), [])
        found.run()
    assert [fault for fault in found.faults if not fault.startswith("decisions.")] == []
    return found.noted


def test_rules_of_an_archive_of_before_it_had_what_they_were_made_of_are_not_proved(
    decided: Files, tmp_path: Path
) -> None:
    assert noted(decided, tmp_path / "new.tar") == {"revisions": [True], "changes": [True]}
    revisions = map(json.loads, decided["revisions.jsonl"].splitlines())
    older = [{name: each[name] for name in each if name != "covers"} for each in revisions]
    decided["revisions.jsonl"] = "".join(f"{json.dumps(each)}\n" for each in older).encode()
    del decided["parts.jsonl"]
    signed_anew(decided, SIGNER)
    assert noted(decided, tmp_path / "old.tar") == {"revisions": [False], "changes": [False]}


def test_rules_and_approvals_without_their_events_are_not_proved(decided: Files, tmp_path: Path) -> None:
    """An archive is a choice of events: who leaves some out could name others for it."""
    header, *table = decided["events.csv"].splitlines(keepends=True)
    kept = [b'"change.' not in row for row in decided["events.jsonl"].splitlines()]
    rows = zip(kept, decided["events.jsonl"].splitlines(keepends=True), table, strict=True)
    left = [(row, cells) for is_kept, row, cells in rows if is_kept]
    decided["events.jsonl"], decided["events.csv"] = (
        b"".join(row for row, _ in left),
        b"".join([header, *(cells for _, cells in left)]),
    )
    decided["changes.jsonl"] = decided["changes.jsonl"].replace(b'"by":"carol"', b'"by":"dave"')
    signed_anew(decided, SIGNER)
    assert noted(decided, tmp_path / "e.tar") == {"revisions": [False], "changes": [False]}


def test_a_change_that_gets_another_title_while_an_archive_is_made_is_no_fault(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = opened(make_rule_set("web"), by="alice", title="web")
    write_rules = exporting._Export.write_rules

    def described_first(export: Any) -> None:
        publishing.describe_change(change=change, by="alice", expected_digest=change.digest, title="other")
        write_rules(export)

    monkeypatch.setattr(exporting._Export, "write_rules", described_first)
    assert noted(exported(Case(change=change.pk)), tmp_path / "e.tar")["changes"] == [True]


def test_what_is_done_with_a_change_while_an_archive_is_made_is_left_out_and_said(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = opened(make_rule_set("web"), by="alice", title="web")
    write_changes = exporting._Export.write_changes

    def described_behind(export: Any) -> None:
        write_changes(export)
        publishing.describe_change(change=change, by="alice", expected_digest=change.digest, title="other")

    monkeypatch.setattr(exporting._Export, "write_changes", described_behind)
    done = asked(packed(exported(Case(change=change.pk)), tmp_path / "e.tar"))
    assert (
        f"not proved: Change {change.pk}: what was done with it since the archive was begun isn't in it" in done.stdout
    )
    assert "changes: 0 of 1 proved by their events" in done.stdout
    assert "WRONG" not in done.stdout


@pytest.mark.parametrize("act", ["approve", "describe"])
def test_an_act_of_the_future_that_no_event_says_is_named(history: Ledgered, tmp_path: Path, act: str) -> None:
    change = opened(make_rule_set("web"), by="alice", title="web")
    without_triggers()
    planted = {"by": "eve", "at": AT + timedelta(days=36_500), "digest": change.digest}
    change.events.create(act=act, **planted)
    files = exported(Case(change=change.pk))
    assert (
        f"eve {change.events.get(by='eve').get_act_display()} (NOT proved: no event here says so)"
        in files["index.html"].decode()
    )
    assert "alice opened (NOT" not in files["index.html"].decode()
    faults, _logs = check(packed(files, tmp_path / "e.tar"))
    assert faults == [
        f"changes.jsonl: no event says this of a Change: ({change.pk}, '{act}', 'eve', '', '{change.digest}')"
    ]


def test_a_change_called_by_an_event_that_there_is_none_of_is_named(history: Ledgered, tmp_path: Path) -> None:
    change = opened(make_rule_set("web"), by="alice", title="web")
    Change.objects.filter(pk=change.pk).update(title="other")
    faults, _logs = check(packed(exported(Case(change=change.pk)), tmp_path / "e.tar"))
    assert faults == [f"changes.jsonl: Change {change.pk} isn't called as any event of it says"]


def test_a_change_that_somebody_is_said_to_have_edited_by_no_event_is_not_proved(
    history: Ledgered, tmp_path: Path
) -> None:
    """Who else wrote the edits that a Change was opened with has no event, so that it can be planted."""
    change = opened(make_rule_set("web"), by="alice", title="web")
    without_triggers()
    change.events.create(act="edit", by="eve", at=timezone.now(), digest=change.digest)
    done = asked(packed(exported(Case(change=change.pk)), tmp_path / "e.tar"))
    assert f"not proved: Change {change.pk}: no event says that eve edited it" in done.stdout
    assert "changes: 0 of 1 proved by their events" in done.stdout


def test_all_events_of_a_change_are_in_an_archive_that_has_one_of_them_that_made_a_revision(history: Ledgered) -> None:
    change = opened(make_rule_set("web"), by="alice")
    began = timezone.now()
    publishing.publish_change(change=change, by="alice", expected_digest=change.digest)
    files = exported(Case(first=began, until=timezone.now()))
    said = [json.loads(text)["said"] for text in files["events.jsonl"].splitlines()]
    assert [each["kind"] for each in said if each["change"] == change.pk] == ["change.open", "change.publish"]
