"""docs/security.md gives the limits that are in force: each figure of its tables is compared with the constant that it comes from."""

import re
from inspect import signature
from pathlib import Path

import pytest
from django.conf import settings

from controlplane import doors, logs, provider, sign_in_form, token_review
from policies import differences, manifests, parameters
from policies.admin import fields, frame, rule_forms
from policies.api import asked
from policies.checking import limits as checking
from policies.engine import errors, quantity, reading, validation
from policies.engine.cel import cost, functions, language, oversize
from policies.engine.objects import metadata
from scheduler import scenario
from scheduler.applying import documents
from scheduler.binder import loop
from scheduler.decisions import time_limit
from scheduler.evidence import runs
from scheduler.extender.request import node_bytes, objects, wire
from scheduler.extender.verbs import in_flight
from scheduler.http_server import body, connection, descriptors, server, worker
from scheduler.http_server.body import Budget
from scheduler.requeue import requeuer
from scheduler.serving import probes
from scheduler.webhooks import sending

ROOT = Path(__file__).resolve().parents[2]
# Without its line ends: a sentence may be wrapped anywhere.
SAID = " ".join((ROOT / "docs" / "security.md").read_text().split())
MI = 1 << 20


def settings_in(file: str) -> dict[str, int]:
    """Return the numbers that a configuration of gunicorn sets. It isn't imported: it sets the role of the process, too."""
    found = re.findall(r"^(\w+) = (\d+)$", (ROOT / file).read_text(), re.MULTILINE)
    return {name: int(number) for name, number in found}


ADMIN, EXTENDER = (
    settings_in("controlplane/gunicorn_conf.py"),
    settings_in("scheduler/extender/server/gunicorn_conf.py"),
)
DEFAULTS = type(settings.BERTH)()
EXTENDER_BODY = DEFAULTS.extender_max_body_bytes
STRANGERS = Budget(4 * EXTENDER_BODY)
KEPT = signature(node_bytes.KnownNodes).parameters["most_bytes"].default
ADMIN_ROOM = Budget(worker.ALL_BODIES_BYTES)


def smallest_that_leaves_room(budget: Budget) -> int:
    """Return the KiB from which on a body leaves room to smaller ones."""
    return next(size for size in range(1, 1 << 20, 512) if budget.for_small(size)) // 1024


def test_the_admin_keeps_a_silent_connection_for_longer_than_proxies_do() -> None:
    of_nginx_and_load_balancers = 60
    assert of_nginx_and_load_balancers < ADMIN["keepalive"] <= EXTENDER["keepalive"]


ROWS = {
    "handshake": f"| handshake, from its first byte; with TLS, silence before it | {connection.HEAD_SECONDS:g} s |",
    "head": f"| head of a request, from its first byte | {connection.HEAD_SECONDS:g} s |",
    "body's time": f"| body of a request; taking an answer | {connection.BODY_SECONDS:g} s each |",
    "pieces of an archive": (
        f"| taking an archive of evidence, which is made as it is sent | {connection.BODY_SECONDS:g} s for each"
        f" {'MiB' if server.HELD_BYTES == runs._PIECE_BYTES == 1 << 20 else '?'};"
    ),
    "silence": f"| silence between requests | {EXTENDER['keepalive']} s (admin {ADMIN['keepalive']} s) |",
    "connections": (
        f"| connections of a process | {server.MOST_CONNECTIONS} (probes of binder, worker and beat {probes._MOST_CONNECTIONS}); fewer if"
        f" its `RLIMIT_NOFILE` doesn't allow {descriptors.FOR_OTHERS} files more, for its other work |"
    ),
    "strangers": f"| connections from one address that were never answered | {server.MOST_STRANGERS};",
    "head's size": (
        f"| request line; header fields; each; the whole head | {EXTENDER['limit_request_line']:,} bytes; "
        f"{EXTENDER['limit_request_fields']}; {EXTENDER['limit_request_field_size']:,};"
    ),
    "room": (
        f"bodies of more than {smallest_that_leaves_room(STRANGERS)} KiB leave {STRANGERS.for_small(EXTENDER_BODY) / MI:g} MiB to smaller ones"
    ),
    "admin's room": (
        f"(admin {worker.BODY_BYTES // MI} MiB; {worker.ALL_BODIES_BYTES // MI} MiB together, {ADMIN_ROOM.for_small(MI) // MI} MiB for those of "
        f"up to {smallest_that_leaves_room(ADMIN_ROOM)} KiB)"
    ),
    "chunks": (
        f"| line of a chunk; fields behind the last; chunks | {body._MOST_CHUNK_LINE:,} bytes; {body._MOST_SMALL_CHUNKS}, and one more for "
        f"each {body._LEAST_CHUNK} bytes |"
    ),
    "lines": f"of the admin and the extender | {logs.REFUSALS_A_SECOND} a second in each process |",
    "handshakes": f"| lines about failed handshakes and malformed heads | {1 / server.LINE_SECONDS:g} a second in each process |",
    "calls": f"| calls answered at once | {EXTENDER['threads']} (admin {ADMIN['threads']}, probes {probes._THREADS}) |",
    "loop": f"| what strangers send, read by the loop | {server.STRANGERS_SECONDS * 1000:g} ms in one go",
    "deadline": f"| `BERTH_EXTENDER_DEADLINE_SECONDS`, {DEFAULTS.extender_deadline_seconds:g} s |",
    "own scheduler": f"the search for a node to free for it | {loop.MOST_SECONDS:g} s each |",
    "worker": f"| a worker: whether a refused Pod may pass now | {requeuer.MOST_SECONDS:g} s |",
    "costs": (
        f"| what expressions may cost | {cost.MAX_EXPRESSION_MILLISECONDS} ms an expression, {cost.MAX_RULE_SET_MILLISECONDS // 1000} s a rule set, "
        f"by an estimate on {cost.NODES:,} nodes; the same for victims rules, on {cost.VICTIMS:,} Pods |"
    ),
    "form": f"| admin | a form | {settings.DATA_UPLOAD_MAX_MEMORY_SIZE / MI:g} MiB; {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:,} fields; no files |",
    "form's rows": f"| rows of each kind, those to be deleted among them | {rule_forms._MOST_ROWS}, whatever INITIAL_FORMS says |",
    "checks": f"each role; {settings.REST_FRAMEWORK['DEFAULT_THROTTLE_RATES']['check'].split('/')[0]} checks a minute an account",
    "checking": (
        f"| checking one | {checking.CPU_SECONDS} s of one core, {checking.MEMORY_BYTES // MI} MiB, in a process apart; "
        f"two at once for each process that asks; of many each by itself, and others have their turn after {checking.TURN_SECONDS} s |"
    ),
    "faults": f"| {errors.MOST_FAULTS:,} of a document; {errors.MOST_FAULTS:,} of all files of a call to REST",
    "checking all": (
        f"| checking the documents of a request | {checking.REQUEST_SECONDS} s for all of them, from the request's beginning; "
        f"after {checking.LONG_SECONDS} s only {'four' if checking.LONG_AT_ONCE == 4 else '?'} such requests at once, of the admin's eight threads"
    ),
    "file": f"| the same | a file or a field of YAML or JSON | {manifests.MAX_CHARACTERS // MI} Mi characters |",
    "document": (
        f"| {manifests.MAX_VALUES:,} values and {manifests.MAX_WRITTEN // MI} Mi characters of texts and paths, anchors counted each time; "
        f"{manifests.MAX_NESTING} deep, as a rule document {reading.MAX_DEPTH} |"
    ),
    "documents": f"| documents of all files together, those in Lists among them | {documents.MOST_DOCUMENTS:,} |",
    "elements": f"| REST: elements of a list in a body | {asked.MOST_LISTED:,} | 400 |",
    "faults of a body": (
        f"| {errors.MOST_FAULTS:,}; of a list the first {asked._MOST_FAULTY} faulty elements, "
        f"of unknown members the first {asked._MOST_UNKNOWN} |"
    ),
    "nesting": f"| each member once, lists and objects {manifests.MAX_NESTING} deep inside each other, no NaN |",
    "rules": f"| rules of each kind; an expression | {validation.MAX_RULES}; {language.MAX_LENGTH:,} characters,",
    "reviews": f"| within a minute {token_review.OF_ADDRESS} of an address, of IPv6 a /64, and {token_review.IN_ALL} in all; four at once;",
    "quantity": f"| {quantity._MAX_LENGTH} characters beside leading zeros; {functions.MAX_DIGITS} digits in a sum;",
    "differences": f"| {differences._DOCUMENT_STEPS:,} steps; {differences.TEXT_STEPS:,}. Beyond them",
    "extender's body": f"| extender | body | {EXTENDER_BODY // MI} MiB, four such in memory together |",
    "pieces": (
        f"| {wire.MAX_BODY_PIECES:,} commas and brackets; of a Binding {wire._MAX_BINDING_BYTES >> 10} KiB |"
    ),
    "nodes": f"| nodes of a body, in full or by name | {node_bytes.MAX_NODES:,} |",
    "Pod": f"| extender | a Pod | {objects.MAX_POD_BYTES // MI} MiB, as the API server; {objects.MAX_POD_PIECES:,} commas and brackets |",
    "nodes kept": (
        f"| nodes kept of full bodies | {KEPT // 10**6} MB, with {node_bytes._BESIDE_TEXT} bytes for each beside its text, and the key that tells it "
        f"apart, of {node_bytes._MOST_VALUE} bytes at most."
    ),
    "in flight": (
        f"| {in_flight.MOST_BYTES // 10**6} MB, with {objects._PIECE_BYTES} bytes for each value beside the text; {in_flight.FORGET_SECONDS:g} s."
    ),
    "shared": f"of up to {metadata.MOST_SHARED_CHARACTERS:,} characters in {metadata.MOST_SHARED_TEXTS} texts each |",
    "names": (
        f"| a Pod's name, namespace and UID; the name of a node sent in full | {objects.MAX_NAME_LENGTH} characters each, none of them NUL |"
    ),
    "reads": f"within {cost.MAX_EXPRESSION_MILLISECONDS} ms; {oversize.MOST_VALUES:,} values, {oversize.MOST_DEEP} deep |",
    "names in a field": f"| names in a field of a form, by commas | {fields._MOST_NAMES:,} |",
    "words of a search": f"| words of a search in a list | {frame.MOST_WORDS} | 400 |",
    "REST's limit": f"| REST: `limit`, a place in a list | {parameters.MAX_LIMIT:,} rows a page;",
    "sign-ins by password": (
        f"| sign-ins by password, and the old one where a new one is set | {sign_in_form.AT_ONCE} compared at once, of the admin's eight threads; {sign_in_form.OF_ADDRESS} wrong ones a minute "
        "of an address,"
    ),
    "sign-ins at a provider": f"| requests that wait for the sign-in provider | {provider.AT_ONCE}, of the admin's eight threads",
    "statement": f"| a statement for a page | {doors.STATEMENT_SECONDS:g} s (PostgreSQL",
    "sign-ins": (
        f"After five wrong passwords for an account from one address, of IPv6 a /64, both are refused together for "
        f"{DEFAULTS.lock_out_minutes} minutes"
    ),
    "sessions": f"A session ends after {DEFAULTS.session_hours} hours",
    "webhooks": f"- One deadline for the whole request ({DEFAULTS.webhook_seconds:g} s); {sending.MAX_HEAD} bytes of the answer are kept",
    "pages": f"| {time_limit.SECONDS:g} s together for each request; a scenario {scenario.SECONDS:g} s, one at a time on pages |",
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_limit_is_as_the_table_says(row: str) -> None:
    assert row in SAID


def test_what_the_tables_say_in_words_is_so() -> None:
    assert (checking.PROCESSES, token_review.AT_ONCE, settings.DATA_UPLOAD_MAX_NUMBER_FILES) == (2, 4, 0)
    assert (settings_in("scheduler/extender/server/worker.py")["BODIES_AT_ONCE"], DEFAULTS.sign_in_failures) == (4, 5)
