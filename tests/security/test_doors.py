"""Every URL as everybody: who reads what, and that nothing changes by those who may not, without a token, or by reading.

What each page answers to whom stands in doors.txt, which people review; a URL without its lines fails. `WRITE=yes` writes it anew.
REST has a table of its own (tests/component/rest/doors.txt), and so have the acts on a Change (tests/component/policies/test_change_doors.py).
"""

import copy
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import transaction

from scheduler.models import Decision
from tests.builders import TEAM_FILTER, assignment_document, priority_class_document, rule_set_document
from tests.conftest import HTTPSClient
from tests.security.crawl import Place, case_of, places
from tests.security.people import PEOPLE, ROLES, WHOLE, knocking
from tests.security.rows import make_rows, put_everywhere, state

OPEN = {"/livez", "/readyz", "/metrics", "/admin/login/"}
MARK = "m4rk3r"
SCRIPT = "<script>al(1)</script>"
KEYS_OF_OTHERS = ("1", "2", "web", "all-web", "batch", "changes", "nobody")
METHODS = ("post", "put", "patch", "delete")
TABLE = Path(__file__).with_name("doors.txt")
# Those who may change nothing at all.
READERS = ("nobody", "customer", "no role", "Auditor")
# By which methods each of them asks: in the short form by POST, and by one of the others.
BY_READERS = [
    (who, method)
    for who in READERS
    for method in METHODS
    if WHOLE or method in {"post", METHODS[1 + READERS.index(who) % 3]}
]
OURS = {"auth", "policies", "scheduler"}
# What everybody sends: names of fields that many forms have, and what no form may take.
FORM = {
    "post": "yes",
    "reason": "x",
    "name": "mine",
    "description": "x",
    "_save": "Save",
    "value": "1",
    "is_superuser": "on",
}
# What a page of another site may say that it sends.
KINDS_OF_PAGES = (
    "text/plain",
    "text/plain; charset=application/json",
    "application/json; charset=utf-16",
    "application/x-www-form-urlencoded; charset=utf-7",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "",
)
# What logging in and out, and one's own password, change is one's own.
OWN = ("/admin/login/", "/admin/logout/", "/admin/password_change/")
# That an archive is asked for, and taken along, is an act of auditors: it leaves its AuditEvent.
ARCHIVES = "/admin/scheduler/evidence/"
# Models whose pages have another word in their path.
MODELS_OF_PAGES = {
    "deliveries": "delivery",
    "evidence": "evidenceexport",
    "legal-holds": "legalhold",
    "webhooks": "webhook",
}


@pytest.fixture
def rows(db: None) -> None:
    make_rows()


@pytest.fixture
def checks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the limit of checks a minute away, which tests of REST look at: here each answer is wanted."""
    monkeypatch.setattr("policies.api.throttles.CheckThrottle.rate", "1000000/min", raising=False)


def paths() -> list[str]:
    """Return every URL with the key of a row that is there; in the whole form with those of others too, each case once."""
    own = set(pages_of(places()).values())
    others = sorted({path for place in places() if place.has_keys for path in filled(place)} - own)
    first = {case_of(path): path for path in (*reversed(others), *own)}
    return sorted({*own, *first.values()})


def shared(found: list[str], who: str, among: Sequence[str]) -> list[str]:
    """Return a person's part of the paths, in the whole form all of them."""
    return found if WHOLE else found[among.index(who) :: len(among)]


def filled(place: Place) -> Iterator[str]:
    """Iterate over a place's paths with the key of a row that is there."""
    own = _key_of(place)
    if len(place.parts) == 3:
        yield f"{own}{place.parts[1]}changes".join((place.parts[0], place.parts[2]))
    for key in (own, *(KEYS_OF_OTHERS if WHOLE else ())):
        yield place.path(key)


def _key_of(place: Place) -> str:
    """Return a key of the kind of row that a place shows: its model's name is in the path, or it is REST's."""
    words = place.parts[0].strip("/").split("/")
    names = {"rule-sets": "web", "assignments": "all-web", "priority-classes": "batch", "revisions": "1"}
    if words[0] == "api":
        return names.get(words[-1]) or str(Decision.objects.get().pk)
    if words[-1] in names:
        return names[words[-1]]
    models = apps.get_app_config(words[1]).models if len(words) == 3 and words[1] in OURS else {}
    model = MODELS_OF_PAGES.get(words[-1], words[-1])
    # PostgreSQL's numbers go on after what is rolled back: the first row's isn't 1.
    return str(models[model]._default_manager.values_list("pk", flat=True).first()) if model in models else "1"


def pages() -> dict[str, str]:
    """Return the path of every page with the key of a row that is there, by the URL as the table has it."""
    return pages_of(place for place in places() if not place.parts[0].startswith("/api/v1/"))


def pages_of(found: Iterable[Place]) -> dict[str, str]:
    """Return the path of every place with the key of a row that is there, by the place's URL with stars."""
    return {"*".join(place.parts): next(filled(place)) if place.has_keys else place.path("") for place in found}


def told_by_table(method: str, who: str) -> dict[str, int]:
    """Return the statuses that the table has for a method and a person, by URL."""
    return {url: statuses[who] for (asked, url), statuses in _table().items() if asked == method and who in statuses}


def _table() -> dict[tuple[str, str], dict[str, int]]:
    lines = [line.split() for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    return {
        (method, url): {who: int(status) for who, status in zip(PEOPLE, statuses, strict=True)}
        for method, url, *statuses in lines
    }


def _write(method: str, who: str, answers: Mapping[str, int]) -> None:
    table = _table() if TABLE.exists() else {}
    for url, status in answers.items():
        # A person whose column isn't written yet: asked by a later test of the same run.
        table.setdefault((method, url), dict.fromkeys(PEOPLE, 0))[who] = status
    wide = max(len(url) for _, url in table) + 2
    lines = [f"{'':7}{'':{wide}}" + "".join(f"{each:>12}" for each in PEOPLE)]
    for (asked, url), statuses in sorted(table.items(), key=lambda row: (row[0][1], row[0][0])):
        if url in pages():
            lines.append(f"{asked:<7}{url:<{wide}}" + "".join(f"{statuses[each]:>12}" for each in PEOPLE))
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def compare_with_table(method: str, who: str, asked: Mapping[str, str], answers: Mapping[str, int]) -> None:
    """Check what every page answered against the reviewed table.

    Args:
        method: GET, POST, PUT, PATCH or DELETE.
        who: one of PEOPLE.
        asked: `pages()` before anything was asked for.
        answers: statuses by path.
    """
    said = {url: answers[path] for url, path in asked.items()}
    if os.environ.get("WRITE"):
        _write(method, who, said)
    assert said == told_by_table(method, who), "review it: WRITE=yes writes tests/security/doors.txt anew"


AUDIT = ("/admin/policies/audit/", "/api/v1/events")


@pytest.mark.parametrize("who", ["nobody", "customer", "no role"])
@pytest.mark.usefixtures("rows")
def test_who_has_no_role_reads_nothing_of_anybodys(who: str) -> None:
    assert len(put_everywhere(MARK)) > 30
    client = knocking(who)
    read = {path: client.get(path) for path in paths()}
    told = [path for path, response in read.items() if MARK in response.content.decode(errors="replace")]
    assert told == []
    if who == "nobody":
        shown = {path for path, response in read.items() if response.status_code == 200}
        assert shown <= OPEN


@pytest.mark.parametrize("who", ROLES)
@pytest.mark.usefixtures("rows")
def test_accounts_are_a_superusers(who: str) -> None:
    """In the short form the roles share the other pages, which name nobody else's account."""
    client, asked = knocking(who), paths()
    for path in {*shared(asked, who, ROLES), *(path for path in asked if path.startswith("/admin/auth/"))}:
        response = client.get(path)
        # That an account was made is an act: the audit names it to everybody with a role.
        if not path.startswith(AUDIT):
            assert "somebody-else" not in response.content.decode(errors="replace"), path
        if path.startswith("/admin/auth/") and path != "/admin/auth/":
            assert response.status_code in {302, 403, 404}, path


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.usefixtures("rows")
def test_reading_any_page_changes_nothing_whoever_reads(who: str) -> None:
    client, before, asked, answers = knocking(who), state(), pages(), {}
    for path in paths():
        for method in ("head", "options", "get") if WHOLE else ("get",):
            # That documents were taken along is an act: it leaves its AuditEvent.
            if not path.startswith((*OWN, "/api/v1/export")):
                answers[path] = getattr(client, method)(path).status_code
    assert state() == before
    answers |= {path: client.get(path).status_code for path in asked.values() if path.startswith(OWN)}
    compare_with_table("GET", who, asked, answers)


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.usefixtures("rows")
def test_no_post_without_a_token_is_taken(who: str) -> None:
    """In the short form the superuser, for whom all is open, asks every URL; the others share them."""
    client, before = knocking(who, enforce_csrf_checks=True), state()
    for path in paths() if who == "superuser" else shared(paths(), who, PEOPLE[:-1]):
        response = client.post(path, {"post": "yes", "reason": "x", "name": "x", "_save": "Save"})
        # Who isn't signed in is sent to do so, or asked for a token; a page that isn't there, or takes no post, is said to be so.
        allowed = {302, 401, 403, 404, 405} if who in {"nobody", "customer"} else {403, 404, 405}
        if path not in OPEN - {"/admin/login/"}:
            assert response.status_code in allowed | {301}, path
    assert state() == before


@pytest.mark.parametrize("kind", KINDS_OF_PAGES)
@pytest.mark.usefixtures("rows")
def test_no_post_of_another_sites_page_is_taken_whatever_it_says_it_is(kind: str) -> None:
    """In the short form each kind asks its part of the URLs. A page can send these without asking first, but for JSON."""
    client, before = knocking("superuser", enforce_csrf_checks=True), state()
    for path in shared(paths(), kind, KINDS_OF_PAGES):
        headers = {"Origin": "https://evil.example.org", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
        response = client.generic(
            "POST", path, b'{"post":"yes","csrfmiddlewaretoken=":"&_save=Save"}', kind, headers=headers
        )
        if path not in OPEN - {"/admin/login/"}:
            assert response.status_code in {301, 400, 403, 404, 405}, (path, response.status_code)
    assert state() == before


@pytest.mark.parametrize(("who", "method"), BY_READERS)
@pytest.mark.usefixtures("rows")
def test_who_only_reads_changes_nothing(who: str, method: str) -> None:
    client, before, asked, answers = knocking(who), state(), pages(), {}
    for path in paths():
        if path.startswith((*OWN, ARCHIVES)):
            continue
        answers[path] = _send(client, method, path)
        assert answers[path] < 500 or path == "/readyz", (path, answers[path])
    assert state() == before
    archives = [path for path in asked.values() if path.startswith(ARCHIVES)]
    answers |= {path: _send(client, method, path) for path in archives}
    compare_with_table(method.upper(), who, asked, answers | own_answers(who, method))


@pytest.mark.parametrize("who", [who for who in PEOPLE if who not in READERS])
@pytest.mark.usefixtures("rows")
def test_who_may_write_is_answered_as_the_table_says(who: str) -> None:
    client, asked, answers = knocking(who), pages(), {}
    for path in asked.values():
        if not path.startswith(OWN):
            with transaction.atomic():
                answers[path] = _send(client, "post", path)
                transaction.set_rollback(True)
    compare_with_table("POST", who, asked, answers | own_answers(who, "post"))


@pytest.mark.parametrize("who", [who for who in PEOPLE if who not in READERS])
@pytest.mark.usefixtures("rows")
def test_no_page_changes_anything_by_another_method_though_its_reader_may_write(who: str) -> None:
    """Each asks by one of PUT, PATCH and DELETE, in the whole form by all. What they send is what a POST would be taken for."""
    client, before, asked = knocking(who), state(), pages()
    answers = {
        method: {path: _send(client, method, path) for path in asked.values() if not path.startswith(OWN)}
        for method in (METHODS[1:] if WHOLE else (METHODS[1 + PEOPLE.index(who) % 3],))
    }
    assert state() == before
    for method, found in answers.items():
        compare_with_table(method.upper(), who, asked, found | own_answers(who, method))


def _send(client: HTTPSClient, method: str, path: str) -> int:
    as_json = {"data": json.dumps(FORM), "content_type": "application/json"}
    status: int = getattr(client, method)(path, **({"data": FORM} if method == "post" else as_json)).status_code
    return status


def own_answers(who: str, method: str) -> dict[str, int]:
    """Return what is answered to those who sign in and out, and change their own password: each in a session of its own."""
    return {path: _send(knocking(who), method, path) for path in pages().values() if path.startswith(OWN)}


@pytest.mark.parametrize("who", ["Auditor", "superuser"] if WHOLE else ["superuser"])
@pytest.mark.usefixtures("rows")
def test_a_script_in_any_field_stays_text(who: str) -> None:
    fields = put_everywhere(SCRIPT)
    assert len(fields) > 30
    client = knocking(who)
    shown = 0
    for path in paths():
        response = client.get(path)
        assert response.status_code < 500 or path == "/readyz", path
        if "html" in response.headers.get("Content-Type", ""):
            shown += 1
            assert SCRIPT.encode() not in response.content, path
        elif SCRIPT.encode() in response.content:
            assert response.headers["X-Content-Type-Options"] == "nosniff", path
    assert shown > 50


INJECTIONS = [
    "' OR '1'='1",
    "1 OR 1=1",
    "1; DROP TABLE policies_ruleset",
    "' UNION SELECT password FROM auth_user--",
    "%' OR 1=1--",
    "\\",
]
COLUMNS = [
    "verb",
    "rule_set",
    "assignment",
    "pod_namespace",
    "pod_name",
    "pod_uid",
    "best",
    "q",
    "answer",
    "process",
    "mode",
]


@pytest.mark.usefixtures("rows")
def test_no_injection_finds_or_changes_a_row() -> None:
    client, before = knocking("superuser"), state()
    lists = [path for path in paths() if path.startswith("/api/v1/decisions") or path.endswith("/decision/")]
    for path in lists:
        for column in COLUMNS:
            for injection in INJECTIONS:
                response = client.get(path, {column: injection})
                assert response.status_code in {200, 302, 400, 404}, (path, column, injection)
                if path == "/api/v1/decisions" and response.status_code == 200:
                    assert response.json()["results"] == [], (column, injection)
    assert state() == before


ODD: list[Any] = [None, True, -1, 1e308, 10**400, "", "\0", "\ud800", "x" * 5_000, [], {}, [[]], {"": {}}, "1e60000000"]


def _mutated(document: Any) -> Iterator[Any]:
    """Iterate over the document with each of its parts replaced by each odd value."""
    for path in _places(document):
        for odd in ODD:
            made = copy.deepcopy(document)
            part = made
            for name in path[:-1]:
                part = part[name]
            part[path[-1]] = odd
            yield made


def _places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in members:
        yield (*before, name)
        yield from _places(part, (*before, name))


BODIES = [
    b"", b"[]", b"null", b"nul", b"{", b"\x00", b"\xff\xfe", b'{"a":1,"a":2}', b'{"kind":"RuleSet","kind":"Assignment"}', b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b"NaN", b"[Infinity]", b'"\\ud800"', b"9" * 5_000, b"-", b"1e999", b'{"\\u0000":1}',
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.usefixtures("rows", "checks_without_end")
def test_a_body_that_nobody_means_is_refused_and_no_fault(body: bytes) -> None:
    response = knocking("superuser").post("/api/v1/validate", body, content_type="application/json")
    assert response.status_code in {200, 400}, response.content
    assert response.status_code == 400 or not response.json()["ok"]


def _body(path: str, depth: int) -> str:
    """A Pod whose name is nested this deep in the whole body, as the view of a path takes it."""
    name = "@"
    whole = {
        "which": {"pod": {"metadata": {"name": name}}},
        "scenario": {"manifest": {"spec": {"schedulerName": name}}},
    }
    text, around = json.dumps(whole[path.rpartition("/")[2]]), 3
    return text.replace(f'"{name}"', "[" * (depth - around) + "]" * (depth - around))


@pytest.mark.parametrize("path", ["/api/v1/assignments/which", "/api/v1/scenario"])
@pytest.mark.parametrize("depth", [101, 300, 450, 600, 800])
@pytest.mark.usefixtures("rows")
def test_a_body_that_can_be_read_and_not_gone_through_is_refused(path: str, depth: int) -> None:
    response = knocking("superuser").post(path, _body(path, depth), content_type="application/json")
    assert response.status_code == 400, response.content
    assert "nested too deeply" in response.json()["detail"]


@pytest.mark.parametrize(
    "document", [rule_set_document(filters=[TEAM_FILTER]), assignment_document(), priority_class_document()]
)
@pytest.mark.usefixtures("rows", "checks_without_end")
def test_a_document_with_an_odd_part_is_checked_to_the_end(document: dict[str, Any]) -> None:
    client = knocking("superuser")
    for made in _mutated(document):
        response = client.post("/api/v1/validate", json.dumps(made), content_type="application/json")
        assert response.status_code in {200, 400, 413}, (made, getattr(response, "exc_info", None))


COSTLY = "params.many.all(a, params.many.all(b, params.many.all(c, a + b + c > -1)))"
EXPRESSIONS = [
    COSTLY,
    "0x" + "f" * 5_000 + " > 1",
    "9" * 5_000 + " > 1",
    "(" * 5_000,
    "!" * 5_000 + "true",
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda text: text[:12])
@pytest.mark.usefixtures("rows", "checks_without_end")
def test_an_expression_that_cannot_be_afforded_is_a_fault_of_the_document(expression: str) -> None:
    document = rule_set_document(
        params={"many": list(range(2_000))}, filters=[{"name": "a", "expression": expression, "reason": "b"}]
    )
    response = knocking("superuser").post("/api/v1/validate", json.dumps(document), content_type="application/json")
    assert response.status_code == 200, getattr(response, "exc_info", None)
    assert not response.json()["ok"]
