"""Options and arguments of `manage.py` that narrow what it lists, and would be ignored: empty ones, and those of another act."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from controlplane.models import Token
from policies import publishing
from policies.models import Change

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "arguments",
    [
        ("events", "--by="),
        ("events", "--since="),
        ("change", "withdraw", "1", "--as="),
        ("change", "withdraw", "1", "--digest="),
        ("pause", "everything", "--reason=x", "--until="),
        ("token", "list", "--owner="),
    ],
)
def test_an_empty_option_is_refused_where_it_would_count_as_none(arguments: tuple[str, ...]) -> None:
    change = publishing.begin_change(title="t", by="ops")
    arguments = tuple(str(change.pk) if each == "1" else each for each in arguments)
    with pytest.raises(CommandError, match="is empty, as from an unset shell variable"):
        call_command(*arguments)
    assert Change.objects.get(pk=change.pk).state == "draft"
    assert publishing.current_revision().pauses == []


def test_evidence_about_no_uid_is_not_evidence_about_everything(tmp_path: Path) -> None:
    out = tmp_path / "all.tar"
    with pytest.raises(CommandError, match="is empty, as from an unset shell variable"):
        call_command("evidence", f"--out={out}", "--uid=", "--from=2026-01-01")
    assert not out.exists()


def test_tokens_of_an_account_that_there_is_none_of_are_not_none(capsys: pytest.CaptureFixture[str]) -> None:
    User.objects.create(username="ann")
    with pytest.raises(CommandError, match="There is no account anne"):
        call_command("token", "list", "--owner", "anne")
    call_command("token", "list", "--owner", "ann")
    assert (capsys.readouterr().out.strip(), Token.objects.count()) == ("none", 0)


def test_a_list_of_changes_takes_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    change = publishing.begin_change(title="t", by="ops")
    with pytest.raises(CommandError, match=f"change show {change.pk} shows that one"):
        call_command("change", "list", str(change.pk))
    assert capsys.readouterr().out == ""
