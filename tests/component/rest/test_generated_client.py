"""A client that openapi-python-client generates from the schema, and a Change's life played with it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User

from policies.models import Revision
from tests.builders import TEAM_FILTER, rule_set_document
from tests.component.rest.world import schema
from tests.tokens import secret_of

pytestmark = pytest.mark.django_db
_PACKAGE = "berth_rest_client"
# Its own checks of style cost more than the client; YAML is a text to it.
_CONFIGURATION = "post_hooks: []\ncontent_type_overrides:\n  application/yaml: text/plain\n"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the name of the generated package."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "schema.json").write_text(json.dumps(schema(), default=str), encoding="utf-8")
    (folder / "configuration.yml").write_text(_CONFIGURATION, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--meta", "none"]
    command += ["--path", str(folder / "schema.json"), "--config", str(folder / "configuration.yml")]
    done = subprocess.run(
        [*command, "--output-path", str(folder / _PACKAGE), "--fail-on-warning"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield _PACKAGE
    sys.path.remove(str(folder))


def _client(package: str, application: Any, name: str, group: str) -> Any:
    user = User.objects.create(username=name, is_staff=True)
    user.groups.set(Group.objects.filter(name=group))
    made = import_module(package).AuthenticatedClient
    transport = httpx.WSGITransport(app=application)
    return made("https://localhost", token=secret_of(user), httpx_args={"transport": transport})


def test_a_change_is_written_reviewed_and_published_by_it(
    generated: str, application: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    author, approver = (
        _client(generated, application, "author", "Operator"),
        _client(generated, application, "approver", "Approver"),
    )
    models: Any = import_module(f"{generated}.models")

    def call(name: str, *keys: Any, by: Any = author, **more: Any) -> Any:
        answer = import_module(f"{generated}.api.changes.{name}").sync_detailed(*keys, client=by, **more)
        assert answer.status_code < 300, answer.content
        return answer

    opened = call("changes_create", body=models.NewChange(title="Teams have nodes of their own"))
    number, tag = opened.parsed.number, opened.headers["ETag"]
    document = rule_set_document("web", filters=[TEAM_FILTER])
    body = models.ChangesRuleSetsUpdateBody.from_dict(document)
    tag = call("changes_rule_sets_update", number, "web", body=body, if_match=tag).headers["ETag"]
    because = models.Reason(reason="TICKET-1")
    call("changes_submit_create", number, body=because, if_match=tag)
    approved = call("changes_approve_create", number, body=because, if_match=tag, by=approver).parsed
    assert (approved.state.value, approved.approved_by) == ("approved", ["approver"])
    published = call("changes_publish_create", number, body=because, if_match=tag).parsed
    assert published.revision == Revision.objects.get().number
    assert [each.name for each in published.edits] == ["web"]
