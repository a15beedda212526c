"""All findings of the lint of a KubeSchedulerConfiguration: name, severity, effect, remedy.

Names are stable: pipelines and people refer to them. The table in docs/operations.md has the same names.
Effects are those of kube-scheduler v1.36.3, according to its source: pkg/scheduler/extender.go, schedule_one.go,
scheduler.go (buildExtenders), apis/config/validation, and client-go's transport/transport.go.
"""

from functools import partial
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


_error, _warning, _note = partial(Kind, "error"), partial(Kind, "warning"), partial(Kind, "note")

KINDS: dict[str, Kind] = {
    # The file itself
    "not-readable": _stops("the file isn't YAML or JSON.", "Correct the reported line."),
    "wrong-kind": _stops(
        "the file isn't a KubeSchedulerConfiguration of a version that this kube-scheduler knows.",
        "Begin the file with apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration. "
        "v1beta1 to v1beta3 and the old Policy are no longer supported.",
    ),
    "several-documents": _warning(
        "kube-scheduler reads only the first document of the file.",
        "Leave one document in the file.",
    ),
    "unknown-member": _stops(
        "there is no field of this name here.",
        "Spell the field as in Kubernetes' API (case matters), or remove it.",
    ),
    "wrong-type": _stops("the value has the wrong type for this field.", "Write a value of the field's type."),
    "value-refused": _stops("it doesn't take this value here.", "Write a value that it takes, or leave the field out."),
    "election-never-starts": _error(
        "kube-scheduler ends as soon as it has read the cluster: its election of a leader refuses these times.",
        "Make renewDeadline longer, or retryPeriod shorter.",
    ),
    # Profiles
    "profile-name-missing": _stops(
        "schedulerName is empty, or missing beside other profiles.", "Give the profile a schedulerName."
    ),
    "profile-name-twice": _stops("two profiles have the same schedulerName.", "Give each profile a name of its own."),
    "profile-name-is-berths": _error(
        "kube-scheduler schedules the Pods that Berth binds itself: both bind them, and both count on the same room "
        "on a node.",
        "Give the profile another schedulerName.",
    ),
    "plugin-unknown": _stops("it has no plugin of this name.", "Correct the name, or remove the entry."),
    "plugin-of-another-make": _warning(
        "Kubernetes' own kube-scheduler has no plugin of this name, and doesn't start; one that was built with it does.",
        "Run this file with the kube-scheduler that has the plugin.",
    ),
    "feature-gate-needed": _warning(
        "kube-scheduler doesn't start with this field unless its feature gate is on.",
        "Turn the gate on with --feature-gates, or remove the field.",
    ),
    "plugin-misplaced": _stops(
        "the plugin doesn't implement this extension point.", "Enable it at one of its own points, or at multiPoint."
    ),
    "plugin-twice": _stops("a plugin is enabled twice at one extension point.", "Leave one entry."),
    "queue-sort-not-one": _stops(
        "a profile needs exactly one plugin that sorts the queue.",
        "Leave queueSort out: PrioritySort is the default. Disable it only where another plugin sorts.",
    ),
    "queue-sort-differs": _stops(
        "all profiles share one queue, and need the same queueSort and the same arguments of its plugin.",
        "Write the same in every profile.",
    ),
    "no-bind-plugin": _stops(
        "a profile needs a plugin that binds, also where an extender binds.", "Leave DefaultBinder enabled."
    ),
    "weight-negative": _stops(
        "a plugin's weight is negative, and its check of the sum fails.", "Write a weight from 1 on."
    ),
    "arguments-twice": _stops("a plugin has arguments twice in a profile.", "Put them into one entry of pluginConfig."),
    "arguments-unread": _warning(
        "kube-scheduler starts, but the profile has no plugin of this name: nothing reads these arguments.",
        "Correct the name, or remove the entry.",
    ),
    "ignored-without-fit": _stops(
        "an extender's ignoredByScheduler becomes an argument of NodeResourcesFit, which this profile doesn't have.",
        "Leave NodeResourcesFit enabled, or remove ignoredByScheduler.",
    ),
    "percentage-out-of-range": _stops("percentageOfNodesToScore is outside 0 to 100.", "Set it to 100."),
    "sampling": _warning(
        "From 100 nodes on, kube-scheduler asks only about a sample of the nodes that passed its own filters. If the "
        "rules refuse all of these, the Pod stays Pending although other nodes would fit; nodes outside the sample "
        "aren't candidates for preemption either.",
        "Set percentageOfNodesToScore: 100 (a profile's own value overrides the file's).",
    ),
    # Which extender is Berth
    "no-extender": _error(
        "kube-scheduler never asks Berth: every Pod is placed as if Berth weren't there.",
        "Add an extender with Berth's urlPrefix; manage.py doctor configuration writes one.",
    ),
    "berth-not-found": _warning(
        "None of the extenders was recognized as Berth's, so the checks of Berth's own entry were skipped.",
        "Give Berth's URL with --berth-url.",
    ),
    "two-berth-entries": _error(
        "kube-scheduler asks about every Pod twice: Decisions are recorded twice, and Berth's points count twice.",
        "Leave one entry with all verbs.",
    ),
    # Address
    "url-unusable": _error(
        "kube-scheduler accepts any text as urlPrefix and starts, but every call fails.",
        "Write a whole URL: https://HOST:PORT.",
    ),
    "url-trailing-slash": _note("Harmless: kube-scheduler removes slashes at the end.", "Remove them."),
    "url-path": _error(
        "Berth serves its verbs at the root: with another path before the verb, every call gets 404, which is an "
        "error for kube-scheduler.",
        "End urlPrefix after the port, or let the proxy in between remove the path.",
    ),
    "url-query": _error(
        "kube-scheduler appends the verb to urlPrefix, so the verb becomes a part of the query or fragment, and no "
        "verb is called.",
        "Leave ? and # out of urlPrefix.",
    ),
    "url-redirects": _error(
        "Proxies answer such a path with a redirect. After 301, 302 and 303 Go's client sends a GET without a body, "
        "and "
        "the call fails.",
        "Write the path as the server serves it: one slash, no dots.",
    ),
    "url-credentials": _error(
        "When a call fails, kube-scheduler writes the whole URL into the Pod's condition and into an Event. Whoever "
        "may read Pods can read the secret; /configz shows it, too.",
        "Remove the secret, replace it, and authenticate with a client certificate (tlsConfig).",
    ),
    "plain-http": _error(
        "Pods are sent unencrypted, and anybody in between can answer. Without a client certificate, Berth answers "
        "only callers on its own machine: every other call gets 403.",
        "Use https:// with tlsConfig, or run the extender beside kube-scheduler on 127.0.0.1.",
    ),
    "loopback-is-shared": _note(
        "Whatever shares the loopback interface may call Berth as kube-scheduler does: every process of the machine "
        "or, if the extender is a sidecar, every other container of the Pod.",
        "If other people or containers use the machine or the Pod, set BERTH_EXTENDER_SECRET_PATH and add the path to "
        "urlPrefix, or use https:// with a client certificate.",
    ),
    "secret-path": _note(
        "The secret path keeps out callers who don't know it. When a call fails, kube-scheduler writes the URL into "
        "the Pod's condition and into an Event: whoever may read Pods can read the path.",
        "Use a client certificate (tlsConfig) if these people must not call Berth either.",
    ),
    "secret-path-missing": _error(
        "BERTH_EXTENDER_SECRET_PATH is set, but urlPrefix doesn't end with it: every call gets 404.",
        "Put the path after the port in urlPrefix: http://127.0.0.1:8010/PATH.",
    ),
    # TLS
    "tls-not-verified": _error(
        "enableHTTPS without a CA makes kube-scheduler accept any certificate: anybody in between can place your Pods.",
        "Set tlsConfig.caFile. enableHTTPS has no other effect; remove it.",
    ),
    "tls-insecure": _error(
        "kube-scheduler accepts any certificate: anybody in between can place your Pods.",
        "Set tlsConfig.caFile instead of insecure.",
    ),
    "tls-insecure-with-ca": _stops("a CA and insecure: true exclude each other.", "Remove insecure and keep the CA."),
    "tls-system-roots": _warning(
        "Without a CA, the server's certificate is verified with the machine's own roots: a certificate of an "
        "internal CA is refused, and every call fails.",
        "Set tlsConfig.caFile to the CA that signed Berth's certificate.",
    ),
    "tls-half-a-certificate": _error(
        "A client certificate without its key, or a key without its certificate, is silently ignored: kube-scheduler "
        "sends no certificate, and Berth refuses its calls.",
        "Set both certFile and keyFile.",
    ),
    "tls-no-client-certificate": _error(
        "Berth requires a client certificate: every call without one fails.",
        "Set tlsConfig.certFile and keyFile, with a name that BERTH_EXTENDER_CLIENTS allows.",
    ),
    "tls-unreadable": _stops(
        "the data holds no PEM of this kind.",
        "Encode the whole PEM file, with its BEGIN and END lines, as base64; of a key one without a passphrase.",
    ),
    "tls-inline-key": _warning(
        "Whoever may read kube-scheduler's /configz can read a key in the file.", "Use keyFile."
    ),
    "tls-without-https": _warning(
        "Only urlPrefix decides: with http://, calls are unencrypted, whatever tlsConfig and enableHTTPS say.",
        "Begin urlPrefix with https://.",
    ),
    # Verbs
    "no-verb": _warning("An extender without any verb is never called.", "Set filterVerb and prioritizeVerb."),
    "verb-not-served": _error(
        "Berth doesn't serve this path: the call gets 404 or the answer of another verb, and fails.",
        "Set filterVerb: filter, prioritizeVerb: prioritize, bindVerb: bind, preemptVerb: preempt.",
    ),
    "verb-slash": _note("Berth also accepts a slash at the end; other servers redirect.", "Remove it."),
    "verb-query": _warning(
        "The query after ? is sent with every call. Berth doesn't read the query, and it appears in conditions and "
        "logs.",
        "Remove it.",
    ),
    "filter-verb-missing": _warning(
        "Berth is never asked which nodes a Pod may use: filter rules have no effect.", "Set filterVerb: filter."
    ),
    "prioritize-verb-missing": _warning(
        "Berth is never asked which nodes are best: the published score rules have no effect.",
        "Set prioritizeVerb: prioritize and a weight.",
    ),
    "bind-verb-missing": _warning(
        "The published rules count Pods. Without the bind verb they are checked when the Pod is filtered, but not "
        "again when it is bound: with several replicas, or several schedulers, a limit can be exceeded by one.",
        "Set bindVerb: bind.",
    ),
    "bound-elsewhere": _warning(
        "Another extender binds Pods, and only one may. The published rules count Pods: they are checked when the Pod "
        "is filtered, but not again when it is bound. With several replicas, or several schedulers, a limit can be "
        "exceeded by one.",
        "Leave it so if that does no harm; otherwise remove the other extender's bindVerb and set bindVerb: bind here.",
    ),
    "preempt-verb-missing": _warning(
        "The published rules protect Pods from preemption, but kube-scheduler doesn't ask Berth: protected Pods are "
        "preempted.",
        "Set preemptVerb: preempt.",
    ),
    "two-binders": _stops("only one extender may have a bindVerb.", "Keep bindVerb at one of them."),
    # Nodes
    "node-cache-capable-false": _error(
        "Nodes that passed this extender count as empty for kube-scheduler's own scores (kubernetes issue 141781): "
        "resource, balance, image and spreading scores are wrong, also for later extenders. Full nodes are sent in "
        "both directions, too.",
        "Set nodeCacheCapable: true. Berth knows the nodes.",
    ),
    # Weight
    "weight-not-positive": _stops("a prioritizeVerb needs a weight above 0.", "Set weight: 150."),
    "weight-outvoted": _warning(
        "kube-scheduler's own scores together can reach more than Berth's points from 0 to 10: the node that is best "
        "by "
        "the rules may lose to the worst.",
        "Raise the weight (150 lets one point outvote all default scores), or disable score plugins.",
    ),
    "weight-partly-outvoted": _note(
        "One point of Berth's is less than kube-scheduler's own scores together: a node that is better by a point may "
        "lose. This may be intended.",
        "Raise the weight if the rules alone should decide.",
    ),
    "weight-without-verb": _note(
        "A weight has no effect without prioritizeVerb.", "Set prioritizeVerb, or remove the weight."
    ),
    # Time
    "timeout-missing": _warning(
        "The default timeout is 5 s. kube-scheduler asks about one Pod at a time: while Berth hangs, each call delays "
        "all Pods by this time.",
        "Set httpTimeout: 3s.",
    ),
    "timeout-long": _warning(
        "kube-scheduler asks about one Pod at a time: while Berth hangs, each call delays all Pods by this time.",
        "Set httpTimeout: 3s.",
    ),
    "timeout-short": _error(
        "kube-scheduler gives up before Berth's own deadline, so Berth's partial answer is lost. A filter call that "
        "times out fails the Pod's scheduling cycle; scores are silently dropped.",
        "Set httpTimeout a second or more above BERTH_EXTENDER_DEADLINE_SECONDS, or lower that; 3s goes with its default of 1.5.",
    ),
    "timeout-none": _error(
        "A negative timeout means no timeout: one call that hangs stops all scheduling for good.",
        "Set httpTimeout: 3s.",
    ),
    # Ignorable
    "ignorable-true": _warning(
        "While Berth is down or answers errors, Pods are placed without the rules, without any notice. An ignorable "
        "extender is also called after all others.",
        "Set ignorable: false unless placing Pods matters more than the rules.",
    ),
    "ignorable-false": _note(
        "While Berth is down, Pods stay Pending with the reason SchedulerError, and kube-scheduler retries them after "
        "1 to 10 s. Errors of prioritize are ignored nevertheless.",
        "Nothing. Run two replicas if that is too strict.",
    ),
    "ignorable-order": _note(
        "Extenders are called in the file's order, but ignorable ones after all others: the first entry isn't called "
        "first.",
        "Put ignorable extenders last, so that the file shows the real order.",
    ),
    "ignorable-binder": _warning(
        "When the bind verb fails, kube-scheduler binds the Pod itself, and limits aren't checked again.",
        "Set ignorable: false if bindVerb is set.",
    ),
    # Managed resources
    "managed-resources-interest": _warning(
        "Berth is asked only about Pods with a container or init container that has one of these resources in its "
        "requests or limits. Pod-level resources and overhead don't count. All other Pods are placed without the "
        "rules.",
        "Remove managedResources; Assignments choose the Pods.",
    ),
    "managed-resources-ignored": _warning(
        "kube-scheduler stops checking the resource on every node, in every profile, for the Pods of all extenders. "
        "Its scores still count the resource.",
        "Set ignoredByScheduler only for resources that the rules check.",
    ),
    "managed-resources-replace-ignored": _error(
        "ignoredByScheduler replaces the profile's ignoredResources: the resources listed there are checked again, "
        "and Pods that request them fit no node.",
        "Also list those resources in managedResources, or remove ignoredByScheduler.",
    ),
    "managed-resource-twice": _stops("a resource may be managed by only one extender.", "Keep it at one extender."),
    "managed-resource-name": _stops(
        "only extended resources can be managed: your own domain, a slash and a name, such as example.com/gpu.",
        "Correct the name. cpu, memory and every name in kubernetes.io are native resources.",
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
