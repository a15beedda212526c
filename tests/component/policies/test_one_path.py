"""One path: whatever makes a Revision is the publishing of a Change. The table below is all that makes one."""

import ast
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command

from policies import manifests, publishing
from policies.models import Change, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit
from tests.builders import make_rule_set, rule_set_document
from tests.component.pages import opened, publish_all
from tests.component.policies.test_priority_classes import seen

pytestmark = pytest.mark.django_db

A = {"filters": [{"builtin": "PodFitsHost"}]}
B = {"filters": [{"builtin": "MatchNodeSelector"}]}


def _publish(by: User) -> object:
    change = opened(make_rule_set("web", **A))
    return publishing.publish_change(change=change, by=by, expected_digest=change.digest)


def _urgent(by: User) -> object:
    change = opened(make_rule_set("web", **A))
    return publishing.publish_urgently(change=change, by=by, expected_digest=change.digest, reason="fire")


def _archive(by: User) -> object:
    return publishing.archive(rule_set=RuleSet.objects.get(), by=by, reason="unused")


def _go_back(by: User) -> object:
    return publishing.go_back(version=RuleSetVersion.objects.get(number=1), by=by, reason="back")


def _roll_back(by: User) -> object:
    return publishing.roll_back(to_number=1, by=by, reason="back")


def _adopt(by: User) -> object:
    seen("mine", 7, managed=False, state="foreign")
    return publishing.adopt(names=["mine"], by=by, reason="ours from here on")


# Every verb of `policies.publishing` that gives a Revision, and how it is called.
VERBS: dict[str, Callable[[User], object]] = {
    "publish_change": _publish,
    "publish_urgently": _urgent,
    "adopt": _adopt,
    "archive": _archive,
    "go_back": _go_back,
    "roll_back": _roll_back,
}
# Works on what is live without a Change, and stores nothing: `plan` asks with it, and rolls it back.
ONLY_ASKS = {"make_live"}


def _gives_a_revision(name: str) -> bool:
    verb = getattr(publishing, name)
    if not inspect.isfunction(verb):
        return False
    given = typing.get_type_hints(verb).get("return")
    return given is Revision or Revision in typing.get_args(given)


def test_the_table_has_every_verb_that_makes_a_revision() -> None:
    assert {name for name in publishing.__all__ if _gives_a_revision(name)} - ONLY_ASKS == set(VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_publishes_a_change(verb: str) -> None:
    root = User.objects.create_superuser("root")
    publish_all(make_rule_set("web", **A))
    publish_all(make_rule_set("web", **B))
    made = VERBS[verb](root)
    assert isinstance(made, Revision)
    assert made.number == 3
    assert (made.change.state, made.change.revision_id) == ("published", 3)
    assert made.change.events.filter(act__in=["publish", "urgent"], by="root").count() == 1


@pytest.mark.parametrize(
    "command", [["apply"], ["apply", "--publish"], ["importpolicy", "--open-change"]], ids=" ".join
)
def test_each_command_that_takes_a_file_opens_a_change(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    policy = {"apiVersion": "v1", "kind": "Policy", "predicates": [{"name": "PodFitsHost"}]}
    file.write_text(manifests.to_yaml(policy if command[0] == "importpolicy" else rule_set_document()))
    call_command(*command, str(file))
    change = Change.objects.get()
    assert [edit.key[0] for edit in publishing.edits_of(change)] == ["RuleSet"]
    assert change.state == ("published" if "--publish" in command else "draft")


def test_nothing_else_in_the_code_writes_a_revision() -> None:
    """Whoever calls what writes them, by module: each stands on the one before."""
    callers: dict[str, set[str]] = {"write_parts": set(), "make_revision": set(), "make_live": set()}
    for folder in ("policies", "scheduler", "controlplane"):
        for path in (settings.BASE_DIR / folder).rglob("*.py"):
            if "migrations" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                name = _called(node)
                if name in callers:
                    callers[name].add(path.relative_to(settings.BASE_DIR).as_posix())
    assert callers == {
        "write_parts": {"policies/publishing/revisions.py"},
        "make_revision": {"policies/publishing/contents.py"},
        "make_live": {"policies/publishing/changes.py", "scheduler/applying/plan.py"},
    }


def _called(node: Any) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def test_an_edit_of_a_form_is_published_by_nothing_else() -> None:
    edit = Edit.of(make_rule_set("web", **A))
    change = publishing.save_edit(
        edit=edit, change=None, by="ops", title="mine", seen=publishing.seen_of(None, edit.key)
    )
    assert change is not None
    assert not Revision.objects.exists()
