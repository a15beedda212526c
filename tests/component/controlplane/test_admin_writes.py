"""No page writes without an AuditEvent: every URL of the admin server that takes a POST stands in a table that people review."""

import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.conftest import HTTPSClient
from tests.security.crawl import Place, places
from tests.security.rows import make_rows

pytestmark = pytest.mark.django_db

_FORM = "save_edit: change.open or change.edit"

# Of a Change in REST.
_ACTS = (
    *("approve", "comment", "expire", "gate", "publish", "publish-urgently", "rebase", "reject", "reopen"),
    *("request-review", "schedule", "submit", "withdraw"),
)
_KINDS = ("assignments", "priority-classes", "rule-sets")

# URLs that write, by verbs of `policies.publishing` (tests/component/policies/test_audit.py shows what each writes down), by
# signals of accounts (test_audit.py beside this file), or by what is named.
WRITES = {
    "/admin/auth/group/*/change/": "role.change",
    "/admin/auth/group/*/delete/": "role.delete",
    "/admin/auth/group/add/": "role.make",
    "/admin/auth/user/*/change/": "account.change",
    "/admin/auth/user/*/password/": "account.password",
    "/admin/auth/user/add/": "account.make",
    "/admin/login/": "login, login.failed, lockout",
    "/admin/logout/": "logout",
    "/admin/password_change/": "account.password",
    "/admin/policies/assignment/*/change/": _FORM,
    "/admin/policies/assignment/order/": "reorder",
    "/admin/policies/assignment/*/delete/": _FORM,
    "/admin/policies/assignment/add/": _FORM,
    "/admin/policies/assignment/versions/*/*/go-back/": "go_back, propose_going_back",
    "/admin/policies/change/*/act/": "each act's own verb",
    "/admin/policies/change/add/": "begin_change",
    "/admin/policies/gatesetting/add/": "set_gate_level",
    "/admin/policies/pauses/end-exemption/": "end_exemption",
    "/admin/policies/pauses/exempt/": "exempt",
    "/admin/policies/pauses/pause/": "pause",
    "/admin/policies/pauses/resume/": "resume",
    "/admin/policies/priorityclass/*/change/": _FORM,
    "/admin/policies/priorityclass/*/delete/": _FORM,
    "/admin/policies/priorityclass/*/put-back/": "put_back",
    "/admin/policies/priorityclass/add/": _FORM,
    "/admin/policies/reviewsetting/add/": "set_review",
    "/admin/policies/revision/*/roll_back/": "roll_back, propose_roll_back",
    "/admin/policies/rule-set-text/*/": _FORM,
    "/admin/policies/ruleset/*/archive/": "archive, propose_archiving",
    "/admin/policies/ruleset/*/bring-back/": "go_back, propose_going_back",
    "/admin/policies/ruleset/add/": _FORM,
    "/admin/policies/rulesetversion/*/change/": _FORM,
    "/admin/policies/rulesetversion/*/go-back/": "go_back, propose_going_back",
    "/admin/scheduler/backtest/*/cancel/": "backtest.cancel",
    "/admin/scheduler/backtest/start/": "backtest.start",
    "/admin/scheduler/doctor/canary/": "canary.ask",
    "/admin/scheduler/deliveries/*/again/": "webhook.again",
    "/admin/scheduler/inbox/read/": "one's own inbox: nothing is decided",
    "/admin/scheduler/inbox/unread/": "as above",
    "/admin/scheduler/webhooks/*/": "webhook.change",
    "/admin/scheduler/webhooks/*/delete/": "webhook.delete",
    "/admin/scheduler/webhooks/*/secret/": "webhook.secret",
    "/admin/scheduler/webhooks/*/test/": "webhook.test",
    "/admin/scheduler/webhooks/add/": "webhook.make",
    "/admin/scheduler/evidence/*/download/": "export",
    "/admin/scheduler/evidence/start/": "export",
    "/admin/scheduler/export/": "export",
    "/admin/scheduler/import/": "open_change",
    "/admin/scheduler/legal-holds/*/lift/": "hold.lift",
    "/admin/scheduler/legal-holds/make/": "hold.make",
    "/admin/scheduler/ledger/verify/": "verify",
    "/admin/scheduler/pending/wake/": "wake",
    "/admin/scheduler/pods/*/*/wake/": "wake",
    "/admin/scheduler/preview/save-test/": _FORM,
    "/admin/scheduler/priority-classes/*/go-back/*/": "go_back, propose_going_back",
    "/admin/scheduler/priority-classes/*/put-back/": "put_back",
    "/admin/scheduler/priority-classes/adopt/": "adopt, propose_adoption",
    "/api/v1/canary-pods": "canary.ask",
    "/api/v1/changes": "begin_change",
    "/api/v1/exemptions": "exempt",
    "/api/v1/pauses": "pause",
    "/api/v1/revisions/*/rollback": "roll_back, propose_roll_back",
    "/api/v1/changes/apply": "open_change, submit_change, publish_change",
    **{f"/api/v1/changes/*/{act}": "the act's own verb" for act in _ACTS},
    **{f"/api/v1/changes/*/{kind}/*/discard": "discard_edits" for kind in _KINDS},
    "/admin/profile/*/end/": "session.end",
    "/admin/profile/end-others/": "session.end",
    "/admin/tokens/*/revoke/": "token.revoke",
    "/admin/tokens/make/": "token.make",
}
# URLs that answer a POST, and decide nothing.
ASKS = {
    "/": "the way to the first page",
    "/admin/": "the first page",
    "/admin/search/": "Unfold's search",
    "/admin/policies/assignment/which/": "the way to the page below",
    "/admin/policies/assignment/*/takes/": "answers about Pods",
    "/admin/policies/assignment/takes/": "answers about Pods",
    "/admin/policies/assignment/to-order/": "the way to the page of the order",
    "/admin/policies/change/*/change/": "the page of a Change: its buttons are of act/",
    "/admin/policies/revision/*/document/": "the document",
    "/admin/policies/ruleset/*/duplicate/": "the way to the form of a copy",
    "/admin/policies/ruleset/*/edit/": "the way to the form",
    "/admin/policies/rule-set-text/*/check/": "says what is wrong with a text so far, and keeps nothing",
    "/admin/policies/rulesetversion/*/check/": "says what is wrong with a form so far, and keeps nothing",
    "/admin/policies/rulesetversion/*/to_rule_set/": "the way to the rule set",
    "/admin/scheduler/doctor/configuration/": "makes a text of answers",
    "/admin/scheduler/doctor/lint/": "looks at a text, and keeps nothing",
    "/admin/scheduler/priority-classes/*/count/": "Pods are counted sooner: nothing is decided",
    "/admin/scheduler/decision/*/change/": "the page of a Decision",
    "/admin/scheduler/decision/*/replay/": "decides a Decision anew, and keeps nothing",
    "/admin/scheduler/preview/": "decides on a Pod in memory",
    "/admin/scheduler/scenario/": "places Pods in memory",
    "/admin/scheduler/which/": "answers about a Pod",
    "/livez": "a probe",
    "/readyz": "a probe",
    "/metrics": "figures",
    "/api/v1/changes/plan": "publishes, and rolls back",
    "/api/v1/lint": "checks files, and keeps nothing",
    "/api/v1/scenario": "places Pods in memory",
    "/api/v1/validate": "checks a document, and keeps nothing",
    "/api/v1/assignments/which": "answers about a Pod",
}
# Lists of rows (without actions), Django's own ways to a row, and its history.
_OF_EACH_MODEL = re.compile(r"/admin/\w+/\w+/(\*/(history/)?)?")
_REFUSED = {403, 404, 405}
_WRITE = re.compile(r'(?:INSERT INTO|UPDATE|DELETE FROM) "(\w+)"')
# What a visit leaves by itself, and what is asked for often and decides nothing.
_OF_A_VISIT = {"controlplane_session", "policies_priorityclasslook", "scheduler_inboxentry"}


def pattern(place: Place) -> str:
    return "*".join(place.parts)


def key_of(place: Place) -> str:
    """Return a key of a row that is there, where the URL names its model."""
    found = re.match(r"/admin/(auth|policies|scheduler)/(\w+)/\*", pattern(place))
    if found is None or found[2] not in {
        model._meta.model_name for model in apps.get_app_config(found[1]).get_models()
    }:
        return "1"
    row: Any = apps.get_model(found[1], found[2])._default_manager.first()
    return str(row.pk) if row else "1"


def test_each_url_that_takes_a_post_is_in_the_table_and_writes_no_row_without_an_event() -> None:
    make_rows()
    root = User.objects.create(username="root", is_superuser=True, is_staff=True)
    unknown, unrecorded = [], []
    for place in places():
        client = HTTPSClient(raise_request_exception=False)
        client.force_login(root)
        with CaptureQueriesContext(connection) as asked:
            body = {"content_type": "application/json"} if pattern(place).startswith("/api/") else {}
            status = client.post(place.path(key_of(place)), {}, **body).status_code
        written = {table for query in asked.captured_queries for table in _WRITE.findall(query["sql"])} - _OF_A_VISIT
        if written and "policies_auditevent" not in written:
            unrecorded.append((pattern(place), written))
        is_known = pattern(place) in WRITES.keys() | ASKS.keys() or _OF_EACH_MODEL.fullmatch(pattern(place))
        if status not in _REFUSED and not is_known:
            unknown.append((pattern(place), status))
    assert unrecorded == [], "they write rows and no AuditEvent"
    assert unknown == [], "review them: add to WRITES what they write down, or to ASKS why they write nothing"
