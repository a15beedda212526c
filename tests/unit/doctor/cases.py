"""For each finding the smallest configuration that brings it up, and one beside it that doesn't.

The differential tests give the same files to the real kube-scheduler: it must refuse to start exactly where a finding
says so, with `CA` in its folder.
"""

from typing import NamedTuple

from scheduler.doctor.published import Known

CA = "ca.pem"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
RULES = Known(refuses=True, scores=True, counts_pods=True, protects_victims=True)
SECRET_PATH = "a1" * 20
# Base64 of the PEM of a key with a passphrase, in PKCS 8 and as `openssl ec` writes it.
LOCKED_KEY = (
    "LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURSBLRVktLS0tLQpNSUhzTUZjR0NTcUdTSWIzRFFFRkRUQktNQ2tHQ1NxR1NJYjNEUUVGRERBY0"
    "JBaWp5eUZrSHZqWWd3SUNDQUF3CkRBWUlLb1pJaHZjTkFna0ZBREFkQmdsZ2hrZ0JaUU1FQVNvRUVLbklTN2h2L2wyUDQxcFIrZ2dIbm9rRWda"
    "QTIKbktCMEMxNFpuT0lsT3dscHhvSXRPMWZmZ2VKd3U2WlBVaGNYUFRSRlBSdlNlQTExeTJ4UHNjcEY0eDA1eHA5egoxMzg5OUllMWNvNlJHSj"
    "BtZkNmQ3dudlNTamhUV25EQWZjSDVUaGxlNGdyYTFQMlBOcHEzOEJLTWZId0pJNFgyCmhqOS93Z1JyNVF3SC8wYjc4MzI3bnBKUnRkdE1sSXhX"
    "N1VKYTR6cUxwd3FkYnpCWnd2UUVBYW4rZzBRN2xlOD0KLS0tLS1FTkQgRU5DUllQVEVEIFBSSVZBVEUgS0VZLS0tLS0K"
)
OPENSSLS_KEY = (
    "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tClByb2MtVHlwZTogNCxFTkNSWVBURUQKREVLLUluZm86IEFFUy0xMjgtQ0JDLEM2QjVERj"
    "MyNjAzQzkyNzlGMjMxQjA3MTNCMzI3MjRBCgo1WERuYUhZckRmNW84SUdwME1xYWExMDdFc2ZRSCsvRnJRRlJpcEdyQjMxWnNuRFJjcHlsY0Jk"
    "RG5EdURSTVNsCis1WHIzaXVIdWkrTVoxdWZzU2x1NnBoZlp1VUZPOXhhT1RIYTB2bnFYZjRzcFFWeS9uUGpiRGhrWkUwemVHL1MKTCtZQnc4Z0"
    "hocnQvdGFIajZNanh4L1o3WHVFMUtPN2lOZGZNTGhaN29hQT0KLS0tLS1FTkQgRUMgUFJJVkFURSBLRVktLS0tLQo="
)
NO_RULES = Known(refuses=False, scores=False, counts_pods=False, protects_victims=False)


class Case(NamedTuple):
    bad: str
    good: str
    known: Known = NO_RULES
    known_good: Known | None = None


def file(members: str) -> str:
    return HEAD + members + "\n"


def extender(members: str = "", url: str = "http://127.0.0.1:8010") -> str:
    """Berth's entry with nothing to find but notes, and more members."""
    usual = {"filterVerb": "filter", "nodeCacheCapable": "true", "httpTimeout": "3s"}
    own = "".join(f", {name}: {text}" for name, text in usual.items() if f"{name}:" not in members)
    return f"{{urlPrefix: '{url}'{own}{', ' if members else ''}{members}}}"


def extenders(*entries: str) -> str:
    return file(f"extenders: [{', '.join(entries)}]")


def berth(members: str = "", url: str = "http://127.0.0.1:8010") -> str:
    return extenders(extender(members, url))


def https(members: str = "") -> str:
    return berth(members, "https://berth.example:8010")


CERTIFIED = f"tlsConfig: {{caFile: {CA}, certFile: {CA}, keyFile: {CA}}}"
CALLED = "prioritizeVerb: prioritize"


def other(members: str = "") -> str:
    """An extender of somebody else's."""
    return extender(f"tlsConfig: {{caFile: {CA}}}{', ' if members else ''}{members}", "https://other.example")


OTHER = other()
GOOD = berth()
SORTED = "{queueSort: {enabled: [{name: PrioritySort}]}}"
IGNORED = "managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]"


def plugins(point: str, *names: str) -> str:
    """A profile that enables plugins at an extension point."""
    return file(
        f"profiles: [{{plugins: {{{point}: {{enabled: [{', '.join(f'{{name: {name}}}' for name in names)}]}}}}}}]"
    )


def arguments(plugin: str, members: str) -> str:
    """A profile with arguments of a plugin."""
    return file(f"profiles: [{{pluginConfig: [{{name: {plugin}, args: {{{members}}}}}]}}]")


CASES: dict[str, Case] = {
    "not-readable": Case(HEAD + "extenders: [\n", GOOD),
    "wrong-kind": Case(GOOD.replace("io/v1", "io/v1beta3"), GOOD),
    "several-documents": Case(GOOD + "---\n" + GOOD, GOOD),
    "unknown-member": Case(berth("filterverb: filter"), GOOD),
    "wrong-type": Case(berth("weight: '150', " + CALLED), berth("weight: 150, " + CALLED)),
    "value-refused": Case(GOOD + "parallelism: 0", GOOD + "parallelism: 1"),
    "election-never-starts": Case(
        GOOD + "leaderElection: {renewDeadline: 2400ms}", GOOD + "leaderElection: {renewDeadline: 2401ms}"
    ),
    "profile-name-missing": Case(GOOD + "profiles: [{schedulerName: a}, {}]", GOOD + "profiles: [{}]"),
    "profile-name-twice": Case(
        GOOD + "profiles: [{schedulerName: a}, {schedulerName: a}]",
        GOOD + "profiles: [{schedulerName: a}, {schedulerName: b}]",
    ),
    "profile-name-is-berths": Case(GOOD + "profiles: [{schedulerName: berth}]", GOOD + "profiles: [{schedulerName: a}]"),
    "plugin-unknown": Case(plugins("score", "NodeResourceFit"), plugins("score", "NodeResourcesFit")),
    "plugin-of-another-make": Case(plugins("filter", "Theirs"), plugins("filter", "NodeName")),
    "feature-gate-needed": Case(arguments("VolumeBinding", "shape: []"), arguments("VolumeBinding", "shape: null")),
    "plugin-misplaced": Case(plugins("score", "NodeName"), plugins("multiPoint", "NodeName")),
    "plugin-twice": Case(plugins("filter", "NodeName", "NodeName"), plugins("filter", "NodeName", "NodePorts")),
    "queue-sort-not-one": Case(
        file("profiles: [{plugins: {queueSort: {disabled: [{name: PrioritySort}]}}}]"),
        file("profiles: [{plugins: {queueSort: {disabled: [{name: NodeName}]}}}]"),
    ),
    "queue-sort-differs": Case(
        file(f"profiles: [{{schedulerName: a}}, {{schedulerName: b, plugins: {SORTED}}}]"),
        file(f"profiles: [{{schedulerName: a, plugins: {SORTED}}}, {{schedulerName: b, plugins: {SORTED}}}]"),
    ),
    "no-bind-plugin": Case(
        file("profiles: [{plugins: {multiPoint: {disabled: [{name: DefaultBinder}]}}}]"),
        file("profiles: [{plugins: {multiPoint: {disabled: [{name: DefaultBinder}]}, bind: {enabled: [{name: DefaultBinder}]}}}]"),
    ),
    "weight-negative": Case(
        file("profiles: [{plugins: {score: {enabled: [{name: ImageLocality, weight: -1}]}}}]"),
        # Its weight is the last of the sum.
        file("profiles: [{plugins: {multiPoint: {enabled: [{name: ImageLocality, weight: -1}]}}}]"),
    ),
    "arguments-twice": Case(
        file("profiles: [{pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]}]"),
        file("profiles: [{pluginConfig: [{name: NodeAffinity}, {name: VolumeBinding}]}]"),
    ),
    "arguments-unread": Case(
        file("profiles: [{pluginConfig: [{name: NodeResourceFit, args: {any: 1}}]}]"),
        file("profiles: [{plugins: {filter: {enabled: [{name: Theirs}]}}, pluginConfig: [{name: Theirs, args: {any: 1}}]}]"),
    ),
    "ignored-without-fit": Case(
        berth(IGNORED) + "profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}}]",
        berth(IGNORED) + "profiles: [{plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}}]",
    ),
    "percentage-out-of-range": Case(GOOD + "percentageOfNodesToScore: 101", GOOD + "percentageOfNodesToScore: 100"),
    "sampling": Case(GOOD, GOOD + "percentageOfNodesToScore: 100", RULES),
    "no-extender": Case(file(""), GOOD),
    "berth-not-found": Case(
        extenders(OTHER, OTHER), extenders(OTHER, OTHER), known_good=Known(refuses=False, urls=("https://other.example",))
    ),
    "two-berth-entries": Case(extenders(extender(), extender()), extenders(extender(), OTHER)),
    "url-unusable": Case(berth(url="127.0.0.1:8010"), GOOD),
    "url-trailing-slash": Case(berth(url="http://127.0.0.1:8010/"), GOOD),
    "url-path": Case(berth(url="http://127.0.0.1:8010/scheduler"), GOOD),
    "url-query": Case(berth(url="http://127.0.0.1:8010?a=b"), GOOD),
    "url-redirects": Case(berth(url="http://127.0.0.1:8010//a"), GOOD),
    "url-credentials": Case(berth(url="http://me:secret@127.0.0.1:8010"), GOOD),
    "plain-http": Case(berth(url="http://berth.example:8010"), berth(url="http://[::1]:8010")),
    "loopback-is-shared": Case(GOOD, https(CERTIFIED)),
    "secret-path": Case(
        berth(url=f"http://127.0.0.1:8010/{SECRET_PATH}"), GOOD, Known(refuses=False, secret_path=SECRET_PATH), NO_RULES
    ),
    "secret-path-missing": Case(
        GOOD, berth(url=f"http://127.0.0.1:8010/{SECRET_PATH}"), Known(refuses=False, secret_path=SECRET_PATH)
    ),
    "tls-not-verified": Case(https("enableHTTPS: true"), https(f"enableHTTPS: true, tlsConfig: {{caFile: {CA}}}")),
    "tls-insecure": Case(https("tlsConfig: {insecure: true}"), https(f"tlsConfig: {{caFile: {CA}}}")),
    "tls-insecure-with-ca": Case(
        https(f"tlsConfig: {{insecure: true, caFile: {CA}}}"), https("tlsConfig: {insecure: true}")
    ),
    "tls-system-roots": Case(https(), https(f"tlsConfig: {{caFile: {CA}}}")),
    "tls-half-a-certificate": Case(https(f"tlsConfig: {{caFile: {CA}, certFile: {CA}}}"), https(CERTIFIED)),
    "tls-no-client-certificate": Case(https(f"tlsConfig: {{caFile: {CA}}}"), https(CERTIFIED)),
    "tls-unreadable": Case(https("tlsConfig: {caData: aGVsbG8=}"), https("tlsConfig: {certData: aGVsbG8=}")),
    "tls-inline-key": Case(https("tlsConfig: {keyData: aGk=}"), https("tlsConfig: {}")),
    "tls-without-https": Case(berth(f"tlsConfig: {{caFile: {CA}}}"), https(f"tlsConfig: {{caFile: {CA}}}")),
    "no-verb": Case(extenders("{urlPrefix: 'http://127.0.0.1:8010', httpTimeout: 3s}"), GOOD),
    "verb-not-served": Case(berth("filterVerb: predicates"), GOOD),
    "verb-slash": Case(berth("filterVerb: filter/"), GOOD),
    "verb-query": Case(berth("filterVerb: 'filter?a=b'"), GOOD),
    "filter-verb-missing": Case(berth(f"filterVerb: '', weight: 150, {CALLED}"), GOOD, RULES),
    "prioritize-verb-missing": Case(GOOD, berth(f"weight: 150, {CALLED}"), RULES),
    "bind-verb-missing": Case(GOOD, berth("bindVerb: bind"), RULES),
    "bound-elsewhere": Case(
        extenders(other("bindVerb: bind"), extender()), extenders(OTHER, extender("bindVerb: bind")), RULES
    ),
    "preempt-verb-missing": Case(GOOD, berth("preemptVerb: preempt"), RULES),
    "two-binders": Case(
        extenders(extender("bindVerb: bind"), other("bindVerb: bind")),
        extenders(extender("bindVerb: bind"), OTHER),
    ),
    "node-cache-capable-false": Case(berth("nodeCacheCapable: false"), berth("nodeCacheCapable: yes")),
    "weight-not-positive": Case(berth(CALLED), berth(f"weight: 1, {CALLED}")),
    "weight-outvoted": Case(berth(f"weight: 14, {CALLED}"), berth(f"weight: 15, {CALLED}")),
    "weight-partly-outvoted": Case(berth(f"weight: 140, {CALLED}"), berth(f"weight: 141, {CALLED}")),
    "weight-without-verb": Case(berth("weight: 150"), GOOD),
    "timeout-missing": Case(berth("httpTimeout: 0s"), GOOD),
    "timeout-long": Case(berth("httpTimeout: 5s"), berth("httpTimeout: 4.9s")),
    "timeout-short": Case(berth("httpTimeout: 1500ms"), berth("httpTimeout: 1501ms")),
    "timeout-none": Case(berth("httpTimeout: -3s"), GOOD),
    "ignorable-true": Case(berth("ignorable: true"), berth("ignorable: false")),
    "ignorable-false": Case(berth("ignorable: false"), berth("ignorable: on")),
    "ignorable-order": Case(
        extenders(extender("ignorable: true"), OTHER), extenders(OTHER, extender("ignorable: true"))
    ),
    "ignorable-binder": Case(berth("ignorable: true, bindVerb: bind"), berth("ignorable: true")),
    "managed-resources-interest": Case(berth("managedResources: [{name: example.com/gpu}]"), GOOD),
    "managed-resources-ignored": Case(
        berth("managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]"),
        berth("managedResources: [{name: example.com/gpu}]"),
    ),
    "managed-resources-replace-ignored": Case(
        berth("managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]")
        + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/fpga]}}]}]",
        berth("managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]")
        + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/gpu]}}]}]",
    ),
    "managed-resource-twice": Case(
        berth("managedResources: [{name: example.com/gpu}, {name: example.com/gpu}]"),
        berth("managedResources: [{name: example.com/gpu}, {name: example.com/fpga}]"),
    ),
    "managed-resource-name": Case(
        berth("managedResources: [{name: cpu}]"), berth("managedResources: [{name: example.com/cpu}]")
    ),
}  # fmt: skip


MORE: dict[str, str] = {
    "the shipped configuration's members": HEAD
    + "parallelism: 8\nenableProfiling: false\ndelayCacheUntilActive: true\npodMaxBackoffSeconds: 20\n"
    + "leaderElection: {leaderElect: false, leaseDuration: 15s}\nclientConnection: {qps: 50.5, burst: 100}\n",
    "nulls": file(
        "profiles: null\nextenders: [{urlPrefix: null, weight: null, tlsConfig: null, managedResources: null}]"
    ),
    "an extender that is null": file("extenders: [null]"),
    "a number for a duration": berth("httpTimeout: 3"),
    "a duration of an unknown unit": berth("httpTimeout: 3sec"),
    "a duration of several units": berth("httpTimeout: 1m1.5s"),
    "a whole number as a fraction": berth(f"weight: 100.0, {CALLED}"),
    "a whole number with an exponent": berth(f"weight: 1e2, {CALLED}"),
    "a fraction for a whole number": berth(f"weight: 1.5, {CALLED}"),
    "a number beyond 32 bits": file("parallelism: 2147483648"),
    "a number beyond 64 bits": berth(f"weight: 9223372036854775808, {CALLED}"),
    "a quoted truth": berth("nodeCacheCapable: 'true'"),
    "a list for an object": file("extenders: {}"),
    "an object for a list": berth("tlsConfig: []"),
    "a member of another spelling": file("Extenders: []"),
    "a member twice": berth("weight: 1, weight: 2"),
    "data of several lines": https('tlsConfig: {certData: "aGVs\\nbG8=\\r\\n"}'),
    "data with a blank": https('tlsConfig: {certData: "aGVs bG8="}'),
    "data that isn't base64": https("tlsConfig: {caData: '!!!'}"),
    "an unknown kind": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Policy\n",
    "no kind": "apiVersion: kubescheduler.config.k8s.io/v1\n",
    "a list": "- 1\n",
    "nothing": "",
    "a negative percentage of a profile": file("profiles: [{percentageOfNodesToScore: -1}]"),
    "a bad percentage that every profile overrides": file(
        "percentageOfNodesToScore: 101\nprofiles: [{percentageOfNodesToScore: 100}]"
    ),
    "a native resource of a domain": berth("managedResources: [{name: foo.kubernetes.io/gpu}]"),
    "a resource of a quota": berth("managedResources: [{name: requests.example.com/gpu}]"),
    "a resource with a blank": berth("managedResources: [{name: 'example.com/a b'}]"),
    "a resource without a name": berth("managedResources: [{}]"),
    "a resource managed by two extenders": extenders(
        extender("managedResources: [{name: example.com/gpu}]"),
        other("managedResources: [{name: example.com/gpu}]"),
    ),
    "a negative weight without its verb": berth("weight: -5"),
    "an unknown argument of a plugin": file("profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {any: 1}}]}]"),
    "arguments of a plugin": file(
        "profiles: [{pluginConfig: [{name: NodeAffinity, args: {kind: NodeAffinityArgs, addedAffinity: {}}}]}]"
    ),
    "arguments of a plugin of another make that are no object": file(
        "profiles: [{pluginConfig: [{name: Mine, args: [1]}]}]"
    ),
    "arguments of a plugin that are no object": file("profiles: [{pluginConfig: [{name: NodeAffinity, args: [1]}]}]"),
    "a duration that is null": berth("httpTimeout: null"),
    "a name of a profile that is empty": file("profiles: [{schedulerName: ''}]"),
    "labels of a selector that are numbers": arguments(
        "PodTopologySpread", "defaultConstraints: [{labelSelector: {matchLabels: {a: 1}}}]"
    ),
    "a strategy without a type": arguments("NodeResourcesFit", "scoringStrategy: {type: ''}"),
    "a strategy without a type, of a plugin that no profile uses": file(
        "profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}, "
        "pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: ''}}}]}]"
    ),
    "arguments without a name": file("profiles: [{pluginConfig: [{args: {any: 1}}]}]"),
    "a key with a passphrase": https(f"tlsConfig: {{certFile: {CA}, keyData: {LOCKED_KEY}}}"),
    "a key with a passphrase in OpenSSL's own form": https(f"tlsConfig: {{certFile: {CA}, keyData: {OPENSSLS_KEY}}}"),
    "a plugin that was there once": plugins("filter", "EBSLimits"),
    "arguments of a plugin of another make": file("profiles: [{pluginConfig: [{name: Mine, args: {any: 1}}]}]"),
}
