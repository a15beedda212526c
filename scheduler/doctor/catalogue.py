"""All findings of the lint of a KubeSchedulerConfiguration: name, severity, effect, remedy.

Names are stable: pipelines and people refer to them. The table in docs/operations.md has the same names.
Effects are those of kube-scheduler v1.36.3, according to its source: pkg/scheduler/extender.go, schedule_one.go,
scheduler.go (buildExtenders), apis/config/validation, and client-go's transport/transport.go.
"""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]

CODE_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


class Kind(msgspec.Struct, frozen=True):
    """A kind of finding. With `stops`, kube-scheduler doesn't start."""

    severity: Severity
    happens: str
    remedy: str
    stops: bool = False


def _stops(happens: str, remedy: str) -> Kind:
    return Kind("error", f"kube-scheduler doesn't start: {happens}", remedy, stops=True)


def _error(happens: str, remedy: str) -> Kind:
    return Kind("error", happens, remedy)


def _warning(happens: str, remedy: str) -> Kind:
    return Kind("warning", happens, remedy)


def _note(happens: str, remedy: str) -> Kind:
    return Kind("note", happens, remedy)


KINDS: dict[str, Kind] = {
    # The file itself
    "not-readable": _stops("the file isn't YAML or JSON.", "Correct the line that is named."),
    "wrong-kind": _stops(
        "the file isn't a KubeSchedulerConfiguration of a version that it knows.",
        "Begin the file with apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration. "
        "v1beta1 to v1beta3 and the old Policy are gone.",
    ),
    "several-documents": _warning(
        "kube-scheduler reads the first document of the file and no other.",
        "Leave one document in the file.",
    ),
    "unknown-member": _stops(
        "it knows no member of this name here.",
        "Spell the member as upstream does (upper and lower case count), or take it away.",
    ),
    "wrong-type": _stops("the value isn't of the type that the member has.", "Write a value of that type."),
    # Profiles
    "profile-name-missing": _stops(
        "with several profiles each needs a schedulerName.", "Give the profile a schedulerName."
    ),
    "profile-name-twice": _stops("two profiles have the same schedulerName.", "Give each profile a name of its own."),
    "profile-name-is-berths": _error(
        "kube-scheduler takes the Pods that Berth binds itself: both bind them, and both count on the node's room.",
        "Give the profile another schedulerName.",
    ),
    "percentage-out-of-range": _stops("percentageOfNodesToScore is outside 0 to 100.", "Set it to 100."),
    "sampling": _warning(
        "From 100 nodes on, kube-scheduler asks about a sample of the nodes that passed its own filters. When the rules "
        "refuse all of these, the Pod stays Pending although other nodes would do; nodes outside the sample are no "
        "candidates for preemption either.",
        "Set percentageOfNodesToScore: 100 (a profile's own value goes before the one of the file).",
    ),
    # Which extender is Berth
    "no-extender": _error(
        "kube-scheduler never asks Berth: every Pod is placed as if Berth weren't there.",
        "Add an extender with Berth's urlPrefix; manage.py doctor configuration writes one.",
    ),
    "berth-not-found": _warning(
        "None of the extenders could be told to be Berth's, so what concerns Berth alone wasn't checked.",
        "Name Berth's address: --berth-url.",
    ),
    "two-berth-entries": _error(
        "Every Pod is asked about twice, its Decisions are recorded twice, and Berth's points count twice.",
        "Leave one entry with all verbs.",
    ),
    # Address
    "url-unusable": _error(
        "kube-scheduler takes any text for a urlPrefix and starts, but every call fails.",
        "Write a whole URL: https://HOST:PORT.",
    ),
    "url-trailing-slash": _note("Harmless: kube-scheduler cuts slashes off the end.", "Leave them away."),
    "url-path": _error(
        "Berth serves its verbs at the root: with another path before them every call is answered 404, which "
        "kube-scheduler takes for an error.",
        "End urlPrefix after the port, or have the proxy in between take the path away.",
    ),
    "url-query": _error(
        "The verb is put behind the text of urlPrefix, so it ends up in the query or fragment and no verb is called.",
        "Leave ? and # out of urlPrefix.",
    ),
    "url-redirects": _error(
        "Proxies answer such a path by a redirect. After 301, 302 and 303 Go's client sends a GET without a body, and "
        "the call fails.",
        "Write the path as the server serves it: one slash, no dots.",
    ),
    "url-credentials": _error(
        "When a call fails, kube-scheduler writes the URL, with what is in it, into the Pod's condition and into an "
        "Event. Who may read Pods reads the secret; /configz shows it too.",
        "Take the secret out, change it, and authenticate by a client certificate (tlsConfig).",
    ),
    "plain-http": _error(
        "Pods travel readable, and who is in between can answer. Without a client certificate Berth answers callers "
        "on its own machine only: every call gets 403.",
        "Use https:// with tlsConfig, or run the extender beside kube-scheduler on 127.0.0.1.",
    ),
    "loopback-is-shared": _note(
        "Whatever shares the loopback may call Berth as kube-scheduler does: every process of the machine or, where the "
        "extender is a sidecar, every other container of the Pod.",
        "With other containers or people beside it, set BERTH_EXTENDER_SECRET_PATH and put the path into urlPrefix, or "
        "use https:// with a client certificate.",
    ),
    "secret-path": _note(
        "The path before the verbs keeps out who doesn't know it. When a call fails, kube-scheduler writes the URL into "
        "the Pod's condition and into an Event: who may read Pods reads it.",
        "Use a client certificate (tlsConfig) where these people must not call either.",
    ),
    "secret-path-missing": _error(
        "BERTH_EXTENDER_SECRET_PATH is set, and urlPrefix doesn't end with it: every call is answered 404.",
        "Put the path behind the port in urlPrefix: http://127.0.0.1:8010/PATH.",
    ),
    # TLS
    "tls-not-verified": _error(
        "enableHTTPS without a CA makes kube-scheduler accept any certificate: anybody in between can place your Pods.",
        "Set tlsConfig.caFile. enableHTTPS does nothing else and can go.",
    ),
    "tls-insecure": _error(
        "kube-scheduler accepts any certificate: anybody in between can place your Pods.",
        "Set tlsConfig.caFile in place of insecure.",
    ),
    "tls-insecure-with-ca": _stops(
        "a CA and insecure: true exclude each other.", "Take insecure away and keep the CA."
    ),
    "tls-system-roots": _warning(
        "Without a CA the server is checked by the machine's own roots: a certificate of an internal CA is refused, "
        "and every call fails.",
        "Set tlsConfig.caFile to the CA that signed Berth's certificate.",
    ),
    "tls-half-a-certificate": _error(
        "A client certificate without its key, or a key without its certificate, is passed over without a word: "
        "kube-scheduler shows no certificate, and Berth refuses it.",
        "Set both certFile and keyFile.",
    ),
    "tls-no-client-certificate": _error(
        "Berth asks for a client certificate and refuses callers without one: every call fails.",
        "Set tlsConfig.certFile and keyFile, with a name that BERTH_EXTENDER_CLIENTS allows.",
    ),
    "tls-inline-key": _warning(
        "A key in the file is served to whoever may read kube-scheduler's /configz.", "Use keyFile."
    ),
    "tls-without-https": _warning(
        "urlPrefix alone decides: with http:// calls go in plain text, whatever tlsConfig and enableHTTPS say.",
        "Begin urlPrefix with https://.",
    ),
    # Verbs
    "no-verb": _warning("An extender without any verb is never called.", "Set filterVerb and prioritizeVerb."),
    "verb-not-served": _error(
        "Berth serves no such path: the call is answered 404 or gets the answer of another verb, and fails.",
        "Set filterVerb: filter, prioritizeVerb: prioritize, bindVerb: bind, preemptVerb: preempt.",
    ),
    "verb-slash": _note("Berth answers with a slash at the end too; other servers redirect.", "Leave it away."),
    "verb-query": _warning(
        "What is behind ? is sent with every call. Berth doesn't read it, and it shows up in conditions and logs.",
        "Leave it away.",
    ),
    "filter-verb-missing": _warning(
        "Berth is never asked which nodes a Pod may use: filter rules have no effect.", "Set filterVerb: filter."
    ),
    "prioritize-verb-missing": _warning(
        "Berth is never asked which nodes are best: the published score rules have no effect.",
        "Set prioritizeVerb: prioritize and a weight.",
    ),
    "bind-verb-missing": _warning(
        "The published rules count Pods. Without the bind verb they are checked when the Pod is filtered, and not "
        "again when it is bound: with several replicas, or several schedulers, a limit can be passed by one.",
        "Set bindVerb: bind.",
    ),
    "preempt-verb-missing": _warning(
        "The published rules protect Pods from preemption, but kube-scheduler doesn't ask: protected Pods are removed.",
        "Set preemptVerb: preempt.",
    ),
    "two-binders": _stops("only one extender may have a bindVerb.", "Leave bindVerb at one of them."),
    # Nodes
    "node-cache-capable-false": _error(
        "Nodes that passed this extender count as empty for kube-scheduler's own scores (kubernetes issue 141781): "
        "resource, balance, image and spreading scores are wrong, also for extenders behind it. Full nodes travel both "
        "ways, too.",
        "Set nodeCacheCapable: true. Berth knows the nodes.",
    ),
    # Weight
    "weight-not-positive": _stops("a prioritizeVerb needs a weight above 0.", "Set weight: 150."),
    "weight-outvoted": _warning(
        "kube-scheduler's own scores together can reach more than Berth's points from 0 to 10: the node that is best by "
        "the rules may lose to the worst.",
        "Raise the weight (150 lets one point outvote all default scores), or disable score plugins.",
    ),
    "weight-partly-outvoted": _note(
        "One point of Berth's is less than kube-scheduler's own scores together: a node that is better by a point may "
        "lose. That may be meant.",
        "Raise the weight where the rules should decide alone.",
    ),
    "weight-without-verb": _note(
        "A weight has no effect without prioritizeVerb.", "Set prioritizeVerb, or leave it away."
    ),
    # Time
    "timeout-missing": _warning(
        "The timeout is 5 s then. kube-scheduler asks about one Pod at a time: while Berth hangs, each call holds up all "
        "Pods that long.",
        "Set httpTimeout: 3s.",
    ),
    "timeout-long": _warning(
        "kube-scheduler asks about one Pod at a time: while Berth hangs, each call holds up all Pods that long.",
        "Set httpTimeout: 3s.",
    ),
    "timeout-short": _error(
        "kube-scheduler gives up before Berth's own deadline: what Berth would answer in part is lost. A filter that "
        "runs out of time fails the Pod's cycle; scores are dropped without a word.",
        "Set httpTimeout above BERTH_EXTENDER_DEADLINE_SECONDS, with a second for the network: 3s.",
    ),
    "timeout-none": _error(
        "A negative timeout is none at all: one call that hangs stops all scheduling for good.", "Set httpTimeout: 3s."
    ),
    # Ignorable
    "ignorable-true": _warning(
        "While Berth is away or in error, Pods are placed without the rules, and nobody is told. An ignorable extender "
        "is also moved behind all others.",
        "Set ignorable: false unless placing Pods matters more than the rules.",
    ),
    "ignorable-false": _note(
        "While Berth is away, Pods stay Pending with the reason SchedulerError and are tried again after 1 to 10 s. "
        "Errors of scores are passed over all the same.",
        "Nothing. Run two replicas where that is too strict.",
    ),
    "ignorable-order": _note(
        "Extenders are asked in the file's order, but ignorable ones after all others: what stands first isn't asked first.",
        "Put ignorable extenders last, so that the file reads as it runs.",
    ),
    "ignorable-binder": _warning(
        "When the bind verb fails, kube-scheduler binds the Pod itself, and limits aren't checked again.",
        "Set ignorable: false where bindVerb is set.",
    ),
    # Managed resources
    "managed-resources-interest": _warning(
        "Berth is asked only about Pods of which a container or init container names one of these resources in requests "
        "or limits. Resources of the whole Pod and overhead don't count. All other Pods are placed without the rules.",
        "Leave managedResources out; Assignments choose the Pods.",
    ),
    "managed-resources-ignored": _warning(
        "kube-scheduler stops checking the resource on every node, in every profile, for Pods of any extender. Its "
        "scores still count it.",
        "Set ignoredByScheduler only for what the rules check themselves.",
    ),
    "managed-resources-replace-ignored": _error(
        "ignoredByScheduler replaces the profile's ignoredResources: what stands there is checked again, and Pods that "
        "ask for it find no node.",
        "Name those resources in managedResources too, or leave ignoredByScheduler out.",
    ),
    "managed-resource-twice": _stops(
        "a resource may be managed once, over all extenders.", "Leave it at one extender."
    ),
    "managed-resource-name": _stops(
        "only extended resources can be managed: a domain of your own, a slash and a name, such as example.com/gpu.",
        "Correct the name. cpu, memory and everything of kubernetes.io are native.",
    ),
}


class Finding(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A finding. `place` is the path in the file, "" for the whole file; `line` counts from 1, and is 0 without a file."""

    id: str
    severity: Severity
    place: str
    line: int
    happens: str
    # The details of this place: names and numbers. Never a secret.
    detail: str
    remedy: str


def make(name: str, place: str, *, line: int = 0, detail: str = "") -> Finding:
    """Return a finding of a kind."""
    kind = KINDS[name]
    return Finding(
        id=name,
        severity=kind.severity,
        place=place,
        line=line,
        happens=kind.happens,
        detail=detail,
        remedy=kind.remedy,
    )


def is_ok(findings: list[Finding], *, strict: bool = False) -> bool:
    """Return whether there is no error; with `strict` no warning either."""
    bad = {"error", "warning"} if strict else {"error"}
    return not any(finding.severity in bad for finding in findings)
