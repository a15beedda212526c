"""Proves a live wiring: creates a canary Pod, and watches until its deletion which of kube-scheduler's calls reach Berth.

The Pod must not disturb others: it requests almost nothing, never pulls an image, ends at once, can't preempt (its
priority is 0, or its class never preempts), and is deleted in any case. A canary that outlives its process
is deleted by the next canary of its namespace, and ends by itself.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import msgspec
from django.conf import settings

from policies.engine.assignments import DEFAULT_SCHEDULER
from policies.wording import ago
from scheduler.cluster.client import decoded
from scheduler.cluster.errors import APIError, APIInvalidError, APINotFoundError, APIUnavailableError
from scheduler.cluster.texts import stored
from scheduler.doctor.addresses import without_secrets
from scheduler.doctor.configuration import VERBS
from scheduler.models import Caller, Decision

# The label of every canary Pod. Its value is the run's number.
LABEL = "berth/canary"

_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_IMAGE = "registry.k8s.io/pause:3.10"
POLL_SECONDS = 0.25
# How long Decisions may take to reach the database once the Pod has a node: they are ingested once a second.
GRACE_SECONDS = 6.0
# How long to wait for the callers' names once all Decisions are there: they are written once a second.
NAMES_SECONDS = 2.5

_LEFTOVER_SECONDS = 600.0
_DELETE_TRIES = 4
_DELETE_WAIT_SECONDS = 0.5

VerbState = Literal["seen", "missing", "not asked"]
_URL = re.compile(r"https?://[^\s\"']+")


class API(Protocol):
    """The methods of the cluster's client that a canary needs."""

    def get(self, *, path: str, query: dict[str, str] | None = None) -> bytes:
        """Send a GET."""

    def post(self, *, path: str, body: bytes) -> bytes:
        """Send a POST."""

    def delete(self, *, path: str, body: bytes | None = None) -> bytes:
        """Send a DELETE."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The requested canary. `verbs` are those that must be seen."""

    namespace: str = "default"
    scheduler_name: str = DEFAULT_SCHEDULER
    verbs: tuple[str, ...] = ("filter", "prioritize")
    timeout_seconds: float = 30.0
    image: str = _IMAGE


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A Decision about the canary."""

    verb: str
    at: datetime
    nodes: int
    feasible: int
    top_reason: str
    error: str
    process: str


# A call proves the wiring for a day. A cluster without new Pods makes no calls, so an older call is no
# fault; but it doesn't prove that certificates, addresses and the file are still right.
_PROVES_SECONDS = 86_400.0


class LastCall(msgspec.Struct, rename="camel", frozen=True):
    """The last call of a caller with a verb; with `during` it was during the canary's life."""

    identity: str
    address: str
    process: str
    seconds_ago: float
    during: bool

    @property
    def ago(self) -> str:
        """How long ago the call was, in words."""
        return ago(self.seconds_ago)

    @property
    def is_old(self) -> bool:
        """Whether the call is too old to prove that the verb is called now."""
        return self.seconds_ago > _PROVES_SECONDS


class VerbReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The result for one verb."""

    verb: str
    state: VerbState
    says: str
    # From the Pod's creation to Berth's answer.
    after_seconds: float | None = None
    process: str = ""
    callers: list[LastCall] = []


class Advice(msgspec.Struct, rename="camel", frozen=True):
    """A finding, and the one thing to do about it."""

    happens: str
    remedy: str


class Report(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The findings of a canary. `ok`: every requested verb was seen, or kube-scheduler had no reason to call it."""

    ok: bool
    summary: str
    namespace: str
    pod: str
    scheduler_name: str
    node: str = ""
    seconds: float = 0.0
    verbs: list[VerbReport] = []
    advice: list[Advice] = []


class Outcome(msgspec.Struct, kw_only=True):
    """The observed state of the Pod itself."""

    node: str = ""
    # The reason of its condition PodScheduled: "", Unschedulable, SchedulerError.
    reason: str = ""
    message: str = ""
    is_gone: bool = False


# Pure: the Pod, and the conclusions from what was observed


def pod_document(wish: Wish, number: str, priority_class: str = "") -> dict[str, Any]:
    """Return the canary Pod. Namespaces that enforce the restricted Pod security standard accept it too."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    container = {
        "name": "canary",
        "image": wish.image,
        "imagePullPolicy": "Never",
        "securityContext": security,
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
    }
    spec: dict[str, Any] = {
        "schedulerName": wish.scheduler_name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": int(wish.timeout_seconds) + 60,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    metadata = {"name": f"berth-canary-{number}", "labels": {LABEL: number}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def may_preempt(spec: dict[str, Any]) -> bool:
    """Return whether a Pod, as admission would return it, could preempt other Pods."""
    return int(spec.get("priority") or 0) > 0 and spec.get("preemptionPolicy") != "Never"


def harmless_class(classes: list[dict[str, Any]]) -> str:
    """Return the lowest PriorityClass with which a canary can't preempt; "" if there is none."""
    found = [each for each in classes if not may_preempt({**each, "priority": each.get("value", 0)})]
    return min((int(each.get("value", 0)), str(each["metadata"]["name"])) for each in found)[1] if found else ""


def judge(
    wish: Wish, *, pod: str, started_at: datetime, seconds: float, outcome: Outcome, sightings: list[Sighting],
    calls: dict[str, list[LastCall]],
) -> Report:  # fmt: skip
    """Return the report on the sightings."""
    first: dict[str, Sighting] = {}
    for sighting in sightings:
        first.setdefault(sighting.verb, sighting)
    verbs = [_verb(verb, wish, started_at, outcome, first, calls.get(verb, [])) for verb in VERBS]
    missing = [each.verb for each in verbs if each.state == "missing"]
    advice = list(_advice(missing, outcome, first, calls, wish))
    ok = not missing and "filter" in first
    seen = [each.verb for each in verbs if each.state == "seen"]
    where = f"; the Pod got {outcome.node}" if outcome.node else ""
    summary = f"Berth was asked: {', '.join(seen)}{where}." if seen else f"Berth was not asked about the canary{where}."
    if missing and seen:
        summary += f" Not seen: {', '.join(missing)}."
    return Report(
        ok=ok, summary=summary, namespace=wish.namespace, pod=pod, scheduler_name=wish.scheduler_name,
        node=outcome.node, seconds=round(seconds, 3), verbs=verbs, advice=advice,
    )  # fmt: skip


def _verb(
    verb: str, wish: Wish, started_at: datetime, outcome: Outcome, first: dict[str, Sighting], calls: list[LastCall]
) -> VerbReport:
    sighting = first.get(verb)
    if sighting is not None:
        after = round(max((sighting.at - started_at).total_seconds(), 0.0), 3)  # two machines' clocks may differ
        said = sighting.error or f"{sighting.feasible:,} of {sighting.nodes:,} nodes"
        return VerbReport(
            verb=verb, state="seen", says=said, after_seconds=after, process=sighting.process, callers=calls
        )
    reason = _why_not_asked(verb, wish, outcome, first)
    if reason:
        return VerbReport(verb=verb, state="not asked", says=reason, callers=calls)
    return VerbReport(verb=verb, state="missing", says="no Decision about the canary", callers=calls)


def _why_not_asked(verb: str, wish: Wish, outcome: Outcome, first: dict[str, Sighting]) -> str:
    """Return why kube-scheduler had no reason to call a verb; "" if it had one."""
    filtered = first.get("filter")
    if verb == "preempt" and verb not in wish.verbs:
        return "a canary never preempts"
    if verb not in wish.verbs:
        return "this canary doesn't wait for it"
    if verb != "filter" and filtered is not None:
        if filtered.feasible == 0:
            return f"the rules refused every node: {filtered.top_reason or filtered.error or 'no reason given'}"
        if verb == "prioritize" and filtered.feasible == 1:
            return "one node was left: kube-scheduler doesn't ask for scores then"
        if verb == "bind" and not outcome.node:
            return "the Pod got no node"
    if not first and not outcome.node and outcome.reason == "Unschedulable":
        return "kube-scheduler's own filters left no node, so it asked nobody"
    return ""


# Parts of kube-scheduler's messages, and their remedies.
_REMEDIES = (
    ("connection refused", "Nothing listens there: start the extender, or correct urlPrefix."),
    ("no such host", "kube-scheduler can't resolve the name: correct urlPrefix. Static Pods don't use the cluster's DNS."),
    ("x509", "kube-scheduler doesn't trust Berth's certificate: set tlsConfig.caFile, and serverName where the name differs."),
    ("certificate required", "Set tlsConfig.certFile and keyFile: Berth wants a client certificate."),
    ("tls:", "The TLS handshake fails: is the client certificate signed by BERTH_EXTENDER_CLIENT_CA_FILE, and not expired?"),
    ("HTTP response to HTTPS client", "Berth serves plain HTTP there: give it a certificate, or begin urlPrefix with http://."),
    ("code 400", "Is urlPrefix http:// while Berth serves TLS? Else something in between changes the body."),
    ("code 403", "Berth doesn't know the caller: is its name in BERTH_EXTENDER_CLIENTS? Without TLS only loopback may call."),
    ("code 404", "The path is wrong: filterVerb: filter, and no path in urlPrefix."),
    ("code 405", "Something answers by a redirect, after which the call is a GET: write the URL as it is served."),
    ("code 413", "Set nodeCacheCapable: true, or raise BERTH_EXTENDER_MAX_BODY_BYTES."),
    ("code 429", "Raise BERTH_EXTENDER_CALLS_PER_SECOND."),
    ("deadline exceeded", "Berth doesn't answer in time, or a firewall drops the packets: look at berth_extender_seconds."),
    ("has not seen the cluster", "Berth can't read the cluster: see the Snapshot and the API server on the page Doctor."),
    ("has not read any Revision", "Berth can't read the database: see the database on the page Doctor."),
)  # fmt: skip


def _advice(
    missing: list[str], outcome: Outcome, first: dict[str, Sighting], calls: dict[str, list[LastCall]], wish: Wish
) -> Iterator[Advice]:
    message = _URL.sub(lambda found: without_secrets(found[0]), outcome.message)
    if outcome.is_gone:
        yield Advice(
            "The canary was deleted before Berth saw it.",
            "Does a policy delete such Pods? Use another namespace.",
        )
    if outcome.reason == "SchedulerError":
        remedy = next((remedy for part, remedy in _REMEDIES if part in message), "Look at kube-scheduler's log.")
        yield Advice(f"kube-scheduler says: {message}", remedy)
        return
    if any(call.during for verb in missing for call in calls.get(verb, [])):
        yield Advice(
            "Calls arrive at the extender, but no Decision about the canary is in the database.",
            "See the worker, Redis and the waiting Decisions on the page Doctor.",
        )
    elif not first and outcome.node:
        yield Advice(
            f"{wish.scheduler_name} placed the Pod without asking Berth.",
            "Check in this order: does kube-scheduler's file have the extender, and was kube-scheduler restarted since? With several replicas, "
            "does the leader have it? Is ignorable true, so that a wrong URL or certificate is silently ignored? Is "
            "managedResources set? manage.py doctor lint FILE checks the file.",
        )
    elif not first and outcome.reason == "Unschedulable":
        yield Advice(
            f"kube-scheduler's own filters refused every node: {message}",
            "The result says nothing about Berth. Use another namespace, or free a node that a Pod without tolerations can use.",
        )
    elif not first and not outcome.is_gone:
        yield Advice(
            f"No scheduler tried to schedule the Pod: none has the schedulerName {wish.scheduler_name}, or it is busy.",
            "Does kube-scheduler run, and does it have a profile of this name (--scheduler-name)?",
        )
    elif "prioritize" in missing:
        yield Advice(
            "kube-scheduler called filter but not prioritize, although several nodes were left.",
            "Set prioritizeVerb: prioritize and a weight. kube-scheduler hides failures of scores: see "
            "berth_extender_calls_total for verb prioritize.",
        )
    if first and {"bind", "preempt"} & set(missing):
        yield Advice("Not every wanted verb was seen.", "Set the verbs in kube-scheduler's file and start it anew.")


# With effects


def run(client: API, wish: Wish, *, on_step: Callable[[str], None] = lambda _step: None) -> Report:
    """Run a canary and return its report. Never raises for faults of the cluster; the Pod is deleted in any case.

    Args:
        client: the cluster's client.
        wish: the requested canary.
        on_step: called with the present step in a few words.

    Raises:
        django.db.DatabaseError: the database is unavailable. The Pod is deleted.
    """
    if wish.scheduler_name in settings.BERTH.scheduler_names:
        return _asks_nobody(wish)
    number = uuid.uuid4().hex[:12]
    collection = f"/api/v1/namespaces/{wish.namespace}/pods"
    path = f"{collection}/berth-canary-{number}"
    on_step("deletes canaries that were left over")
    try:
        _sweep(client, collection)
        document = _harmless(client, wish, collection, number)
    except APIError as error:
        return _refused(wish, error)
    try:
        on_step("creates the Pod")
        report = _watched(client, wish, collection, document, on_step)
    finally:
        on_step("deletes the Pod")
        left = _delete(client, path)
    return report if not left else msgspec.structs.replace(report, ok=False, advice=[*report.advice, left])


def _asks_nobody(wish: Wish) -> Report:
    advice = Advice(
        "A canary shows which of an extender's verbs are called.",
        "Use a scheduler that has Berth as its extender. To check Berth's own scheduler, see the Decision about any of its Pods.",
    )
    summary = f"{wish.scheduler_name} is Berth's own scheduler, which asks no extender: there was no canary."
    return ended(wish, summary, advice)


def _watched(
    client: API, wish: Wish, collection: str, document: dict[str, Any], on_step: Callable[[str], None]
) -> Report:
    began, started_at = time.monotonic(), datetime.now(UTC)
    try:
        made = _read(client.post(path=collection, body=msgspec.json.encode(document)), f"POST {collection}")
    except APIError as error:
        return _refused(wish, error)
    uid, name = str(made["metadata"]["uid"]), str(made["metadata"]["name"])
    on_step("waits for kube-scheduler's questions")
    outcome, bound_at, seen_at = Outcome(), 0.0, 0.0
    while True:
        sightings, calls = _sightings_of(uid), last_calls(started_at)
        try:
            outcome = _look(client, f"{collection}/{name}", outcome)
        except APIError as error:
            return _refused(wish, error, pod=name, summary="The canary was made, and couldn't be watched.")
        now = time.monotonic()
        bound_at = bound_at or (now if outcome.node else 0.0)
        seen_at = seen_at or (now if outcome.node and _all_seen(wish, sightings) else 0.0)
        is_named = all(any(call.during for call in calls.get(verb, [])) for verb in wish.verbs)
        settled = bool(seen_at) and (is_named or now - seen_at > NAMES_SECONDS)
        waited = bool(bound_at) and now - bound_at > GRACE_SECONDS
        if settled or waited or outcome.is_gone or now - began > wish.timeout_seconds:
            break
        time.sleep(POLL_SECONDS)
    return judge(
        wish, pod=name, started_at=started_at, seconds=now - began, outcome=outcome, sightings=sightings, calls=calls
    )


def _all_seen(wish: Wish, sightings: list[Sighting]) -> bool:
    return set(wish.verbs) <= {sighting.verb for sighting in sightings}


def _sightings_of(uid: str) -> list[Sighting]:
    """Return the Decisions about a Pod, oldest first; enforced ones before those of shadows."""
    rows = Decision.objects.filter(pod_uid=uid).defer("body")
    found = sorted(rows, key=lambda row: (row.mode != "enforce", row.at))
    return [
        Sighting(
            verb=row.verb, at=row.at, nodes=row.nodes, feasible=row.feasible, top_reason=row.top_reason,
            error=row.error, process=row.process,
        )
        for row in found
    ]  # fmt: skip


def last_calls(since: datetime | None = None) -> dict[str, list[LastCall]]:
    """Return the last callers, by verb, newest first. `during`: at or after `since`."""
    now = datetime.now(UTC)
    calls: dict[str, list[LastCall]] = {}
    for row in Caller.objects.order_by("-last_at"):
        ago = max((now - row.last_at).total_seconds(), 0.0)
        during = since is not None and row.last_at >= since
        calls.setdefault(row.verb, []).append(LastCall(row.identity, row.address, row.process, round(ago, 1), during))
    return calls


def _read(answer: bytes, context: str) -> dict[str, Any]:
    """Return an object of the API server.

    Raises:
        APIUnavailableError: it isn't one, such as a page of a proxy.
    """
    return decoded(answer, type_=dict[str, Any], context=context)


def _look(client: API, path: str, before: Outcome) -> Outcome:
    """Return the Pod's present state.

    Raises:
        APIError: the API server refuses.
    """
    try:
        pod = _read(client.get(path=path), f"GET {path}")
    except APINotFoundError:
        return Outcome(is_gone=True)
    except APIUnavailableError:
        return before  # unavailable for a moment: the Decisions in the database count, and the deadline ends the wait
    conditions = (pod.get("status") or {}).get("conditions") or []
    scheduled: dict[str, Any] = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    return Outcome(
        node=str(pod["spec"].get("nodeName") or ""),
        reason=stored(str(scheduled.get("reason") or ""), longest=None),
        message=stored(str(scheduled.get("message") or ""), longest=None),
    )


def _harmless(client: API, wish: Wish, collection: str, number: str) -> dict[str, Any]:
    """Return a Pod that can't preempt: a dry run asks admission which priority it would get.

    Raises:
        APIError: admission refuses it, or gives it a priority that could preempt, and no class avoids that.
    """
    document = pod_document(wish, number)
    try:
        asked = client.post(path=f"{collection}?dryRun=All", body=msgspec.json.encode(document))
    except APIInvalidError as error:
        if "dry run" not in str(error):  # an admission webhook that doesn't support dry runs
            raise
        return document
    if not may_preempt(_read(asked, f"POST {collection}?dryRun=All")["spec"]):
        return document
    listed = _read(client.get(path=_CLASSES), f"GET {_CLASSES}")
    chosen = harmless_class(listed.get("items") or [])
    if not chosen:
        message = (
            "Pods of this namespace get a priority that can preempt, and there is no PriorityClass that can't: "
            "a canary could preempt other Pods. Create a PriorityClass with preemptionPolicy: Never"
        )
        raise APIInvalidError(message)
    return pod_document(wish, number, chosen)


def _sweep(client: API, collection: str) -> None:
    """Delete canaries that outlived their process."""
    listed = _read(client.get(path=collection, query={"labelSelector": LABEL}), f"GET {collection}")
    for pod in listed.get("items") or []:
        created = datetime.fromisoformat(str(pod["metadata"]["creationTimestamp"]))
        if (datetime.now(UTC) - created).total_seconds() > _LEFTOVER_SECONDS:
            _delete(client, f"{collection}/{pod['metadata']['name']}")


def _delete(client: API, path: str) -> Advice | None:
    """Delete a canary, with retries. Each name is used only once, so no other Pod can have it."""
    said = ""
    for attempt in range(_DELETE_TRIES):
        try:
            client.delete(path=path, body=b'{"gracePeriodSeconds": 0}')
        except APINotFoundError:
            return None
        except APIError as error:
            said = str(error)
            time.sleep(_DELETE_WAIT_SECONDS * (attempt + 1))
        else:
            return None
    name, namespace = path.rpartition("/")[2], path.split("/")[4]
    return Advice(f"The canary couldn't be deleted: {said}", f"kubectl delete pod -n {namespace} {name}")


_NONE_MADE = "There was no canary: the API server didn't take it, or couldn't be asked."


def _refused(wish: Wish, error: APIError, *, pod: str = "", summary: str = _NONE_MADE) -> Report:
    """Return the report that the API server refused a canary, or a look at it."""
    remedy = {
        401: "Give Berth's account rights: create, get, list and delete Pods in the namespace.",
        403: "Give Berth's account the right to create, get, list and delete Pods in the namespace, or name another "
        "namespace: a quota or a policy may refuse the Pod.",
        404: "Make the namespace, or name another one.",
        None: "Is the API server up, and BERTH_KUBECONFIG right?",
    }.get(error.status, "Name another namespace: an admission policy of this one refuses the canary.")
    return ended(wish, summary, Advice(str(error), remedy), pod=pod)


def ended(wish: Wish, summary: str, advice: Advice, *, pod: str = "") -> Report:
    """Return the report of a canary that ended before it could prove anything."""
    return Report(
        ok=False,
        summary=summary,
        namespace=wish.namespace,
        pod=pod,
        scheduler_name=wish.scheduler_name,
        advice=[advice],
    )
