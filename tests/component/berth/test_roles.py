"""Which sub-command each role may give, by a token of all scopes and by one that only reads. The table is tests/component/berth/roles.txt.

A new sub-command without a row fails; python -m pytest with ROLES=write writes the table anew, for people to look at.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from berth.arguments import build_parser
from berth.completion import commands_of
from berth.main import main
from django.conf import settings

from policies import manifests, publishing
from policies.models import Change
from tests.builders import make_rule_set, rule_set_document
from tests.component.berth.conftest import token_of
from tests.component.pages import opened, publish

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = Path(__file__).with_name("roles.txt")
FIRST, SECOND = [{"builtin": "PodFitsResources"}], [{"builtin": "MatchNodeSelector"}]
ROLES = {
    "Auditor": ("read",),
    "Operator": ("read", "edit", "publish"),
    "Approver": ("read", "edit", "review", "publish"),
}
# What asks no server, and what only the cluster can answer: that it is let in is all that is looked at.
HERE_ALONE = {"login", "logout", "completion"}


def commands(file: str, draft: Change, sent: Change) -> dict[str, list[str]]:
    """Return each sub-command as somebody gives it who has looked at these Changes."""
    digest = ["--digest", sent.digest]
    return {
        "lint": [file],
        "plan": [file, "--no-cluster"],
        "apply": [file],
        "diff": [file],
        "export": [],
        "changes": [],
        "submit": [str(draft.pk)],
        "approve": [str(sent.pk), *digest],
        "reject": [str(sent.pk), "--reason", "no"],
        "withdraw": [str(draft.pk)],
        "rename": [str(draft.pk), "--title", "another title"],
        "rebase": [str(draft.pk)],
        "publish": [str(draft.pk)],
        "rollback": ["1", "--reason", "r"],
        "pause": ["RuleSet/web", "--reason", "r"],
        "resume": ["RuleSet/web", "--reason", "r"],
        "why": ["shop/nobody"],
        "which": ["shop/nobody"],
        "simulate": ["--live", "shop/nobody"],
        "decisions": [],
        "status": [],
        "whoami": [],
    }


def said_of(code: int, err: str) -> str:
    """Return what became of it: done, forbidden, or let in and then refused for how things stand."""
    if code in (0, 2):
        return "done"
    forbidden = ("may not", "permission", "scope", "Out of reach", "needs the right", "`berth whoami`")
    return "forbidden" if any(word in err for word in forbidden) else "let in"


def rows(file: str, capsys: Any, monkeypatch: Any) -> Iterator[str]:
    with monkeypatch.context() as unreviewed:
        unreviewed.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
        publish(make_rule_set(filters=FIRST))
        publish(make_rule_set(filters=SECOND))
    tokens = {(role, given): token_of(role, *given) for role in ROLES for given in {ROLES[role], ("read",)}}
    for command in commands_of(build_parser()):
        if command in HERE_ALONE:
            yield f"{command:<11} asks no server, or keeps what it is told"
            continue
        for role, scopes in ROLES.items():
            found = []
            for given in (scopes, ("read",)):
                draft = opened(make_rule_set("web", filters=FIRST), title="a draft")
                sent = opened(make_rule_set("web", filters=FIRST), title="sent")
                sent = publishing.submit_change(change=sent, by="ops", expected_digest=sent.digest)
                monkeypatch.setenv("BERTH_TOKEN", tokens[role, given])
                code = main([command, *commands(file, draft, sent)[command]])
                found.append(said_of(code, capsys.readouterr().err))
            yield f"{command:<11} {role:<9} {found[0]:<10} {found[1]}"


def test_the_table_of_sub_commands_and_roles(server: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("BERTH_SERVER", server)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "web.yaml"
    file.write_text(manifests.to_yaml(rule_set_document(filters=FIRST)))

    found = "\n".join(["command     role      its scopes read alone", *rows(str(file), capsys, monkeypatch)]) + "\n"

    if os.environ.get("ROLES") == "write":
        TABLE.write_text(found)
    assert found == TABLE.read_text()
