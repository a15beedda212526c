"""Documents of apiVersion berth/v1 as values: RuleSet, Assignment, PriorityClass, Pause, Exemption, and the published Revision.

These values are validated: `validation` makes them from untrusted documents. Field names in documents are camelCase.
"""

from typing import Any, Literal

import msgspec

API_VERSION = "berth/v1"

OnError = Literal["reject", "pass"]
RuleMode = Literal["enforce", "shadow", "off"]
AssignmentMode = Literal["enforce", "shadow", "canary"]
PreemptionPolicy = Literal["PreemptLowerPriority", "Never"]
DeletionPolicy = Literal["Keep", "Delete"]


class Rule(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """What filters and scores have in common: a built-in by name, or a CEL expression."""

    name: str = ""
    builtin: str = ""
    expression: str = ""
    arguments: dict[str, Any] = {}
    on_error: OnError = "reject"
    mode: RuleMode = "enforce"

    @property
    def key(self) -> str:
        """The name that Decisions and `simulate` use: the rule's, or the built-in's where it has none."""
        return self.name or self.builtin


class FilterRule(Rule, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Which nodes a Pod may use.

    `reason` is the constant text of a refusal by an expression. `preemption_helps` says whether removing Pods could
    turn the refusal into a pass.
    """

    reason: str = ""
    preemption_helps: bool = False


class ScoreRule(Rule, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """How good a node is.

    `bounds` (low, high) map an expression's value to 0..100 and clamp it; without bounds the values of the feasible
    nodes themselves are the bounds, so the best gets 100 and the worst 0.
    """

    weight: int = 1
    bounds: tuple[float | int, float | int] | None = None


class VictimRule(Rule, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Which Pods preemption may remove: always an expression, true for a Pod that it may remove.

    `reason` is the constant text of a protection.
    """

    reason: str = ""


DeadlineChoice = Literal["refuse", "pass"]
OutageChoice = Literal["lastKnown", "pass", "refuse"]


class Failures(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """The answers while Berth can't decide, or can't decide in time.

    `pass` lets every node pass without a score; `refuse` refuses every node; `lastKnown` decides as usual, by the last
    known state. When the watch has been silent for `stale_after_seconds`, the Snapshot counts as stale.
    """

    deadline: DeadlineChoice = "refuse"
    stale_snapshot: OutageChoice = "lastKnown"
    stale_after_seconds: int = 300
    database: OutageChoice = "lastKnown"
    redis: OutageChoice = "lastKnown"
    api_server: OutageChoice = "lastKnown"


# The default of a rule set without `failures`. It must be this object: msgspec leaves defaults out of documents and digests by identity.
DEFAULT_FAILURES = Failures()


class Expectation(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The expectations of a test: the feasible nodes, the best one, reasons by node, protected Pods. None isn't checked."""

    feasible: list[str] | None = None
    best: str | None = None
    reasons: dict[str, str] | None = None
    protected: list[str] | None = None


_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class RuleSetTest(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """A test inside a rule set: a Pod, the cluster's nodes, Pods and Namespaces (Kubernetes JSON), and the expected results."""

    name: str
    pod: dict[str, Any]
    nodes: list[dict[str, Any]] = []
    pods: list[dict[str, Any]] = []
    namespaces: list[dict[str, Any]] = []
    now: str = ""
    expect: Expectation = Expectation()

    def __eq__(self, other: object) -> bool:
        # As rules read them: 1, 1.0 and true differ in CEL, and are equal in Python.
        return self is other or (super().__eq__(other) is True and _encode_sorted(self) == _encode_sorted(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment] # as of all that holds dicts


class _WithParams(msgspec.Struct, frozen=True):
    """A struct with `params`, which compares them as CEL does: 1, 1.0 and true differ there, and are equal in Python."""

    def __eq__(self, other: object) -> bool:
        # Loading a Revision compares thousands of documents, nearly all of them with themselves.
        return self is other or (super().__eq__(other) is True and _have_same_params(self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment] # params are a dict


def _have_same_params(one: Any, other: Any) -> bool:
    return not one.params or _encode_sorted(one.params) == _encode_sorted(other.params)


def encoded_params(holder: Any) -> dict[str, bytes]:
    """Return each param as JSON, for comparisons in which 1 isn't 1.0."""
    return {name: _encode_sorted(value) for name, value in holder.params.items()}


class RuleSetSpec(_WithParams, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """The rules, constants that expressions see as `params`, the choices for failures, and the tests."""

    filters: list[FilterRule] = []
    scores: list[ScoreRule] = []
    victims: list[VictimRule] = []
    params: dict[str, Any] = {}
    failures: Failures = DEFAULT_FAILURES
    tests: list[RuleSetTest] = []

    @property
    def keys(self) -> list[str]:
        """The names of all rules."""
        return [rule.key for rule in (*self.filters, *self.scores, *self.victims)]

    @property
    def tests_by_name(self) -> dict[str, RuleSetTest]:
        """The tests by their names; of several with one name the second one is called NAME (2)."""
        found: dict[str, RuleSetTest] = {}
        for test in self.tests:
            name, number = test.name, 1
            while name in found:
                number += 1
                name = f"{test.name} ({number})"
            found[name] = test
        return found


class RuleSet(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """A named set of rules. `version` is 0 for one that isn't stored."""

    name: str
    description: str = ""
    version: int = 0
    spec: RuleSetSpec = RuleSetSpec()


class LabelMatch(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """A label selector inside a match."""

    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []


class Match(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Which Pods an Assignment takes. All members that are set must hold; empty ones aren't checked."""

    scheduler_names: list[str] = []
    namespaces: list[str] = []
    namespace_selector: LabelMatch = LabelMatch()
    pod_selector: LabelMatch = LabelMatch()
    priority_class_names: list[str] = []
    owner_kinds: list[str] = []


class Assignment(_WithParams, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Which Pods get which rule set. The Assignment with the lowest `order` that matches a Pod decides.

    An Assignment of mode canary takes the Pods of `percent` of 100 workloads, and is skipped for others. `params` override
    those of the same names in the rule set.
    """

    name: str
    rule_set: str
    order: int = 100
    match: Match = Match()
    mode: AssignmentMode = "enforce"
    percent: int = 0
    params: dict[str, Any] = {}
    description: str = ""


class PriorityClass(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Kubernetes' PriorityClass, and how Berth handles the one in the cluster. `version` is 0 for one that isn't stored.

    `adopt` lets Berth take over a class of this name that others made. `deletion_policy` says what happens to the
    cluster's class when this one leaves the Revision; `Delete` removes it only if Berth made it.
    """

    name: str
    value: int
    global_default: bool = False
    preemption_policy: PreemptionPolicy = "PreemptLowerPriority"
    description: str = ""
    version: int = 0
    adopt: bool = False
    deletion_policy: DeletionPolicy = "Keep"


class Pause(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Takes a rule, a rule set, an Assignment or everything out of force; see `pauses` for what that means.

    `target` is `everything`, `Assignment/NAME`, `RuleSet/NAME` or `RuleSet/NAME/RULE`. `until`, in RFC 3339 and UTC, is when it
    ends by itself; empty for a Pause that lasts until it is removed.
    """

    name: str
    target: str
    reason: str
    until: str = ""
    description: str = ""


class Workload(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """An owner of Pods, by its kind and name."""

    kind: str
    name: str


class ExemptPods(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Pods of a namespace: one by name, those of a workload, or those with labels. All members that are set must hold."""

    namespace: str
    name: str = ""
    owner: Workload | None = None
    selector: LabelMatch | None = None


class Exemption(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Pods for which a rule, or every rule of a rule set, is skipped. It always ends: `until` is RFC 3339 in UTC.

    `owner` is the person responsible for it; `target` is `RuleSet/NAME` or `RuleSet/NAME/RULE`.
    """

    name: str
    owner: str
    target: str
    reason: str
    until: str
    pods: list[ExemptPods]
    description: str = ""


# Everything that operators write and that a Revision holds.
Document = RuleSet | Assignment | PriorityClass | Pause | Exemption


class Revision(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """The whole published state. `number` counts from 1; 0 is the empty state before anything is published.

    `published_at` is RFC 3339 in UTC. `digest` is the digest that it is stored under; empty for one that isn't stored.
    """

    number: int
    published_at: str = ""
    digest: str = ""
    rule_sets: list[RuleSet] = []
    assignments: list[Assignment] = []
    priority_classes: list[PriorityClass] = []
    pauses: list[Pause] = []
    exemptions: list[Exemption] = []


def encode(document: msgspec.Struct) -> bytes:
    """Return the canonical JSON of a document: sorted members, defaults left out. Digests are computed over it."""
    # msgspec leaves a default out by identity: values that it decoded are that object, but a string from elsewhere is only equal to it.
    read = msgspec.json.decode(msgspec.json.encode(document), type=type(document))
    return msgspec.json.encode(read, order="sorted")


def decode_revision(data: bytes) -> Revision:
    """Read a Revision that `encode` wrote.

    Raises:
        msgspec.DecodeError: the bytes aren't such a document.
    """
    return msgspec.json.decode(data, type=Revision)


def decode_priority_class(data: bytes) -> PriorityClass:
    """Read a PriorityClass that `encode` wrote.

    Raises:
        msgspec.DecodeError: the bytes aren't such a document.
    """
    return msgspec.json.decode(data, type=PriorityClass)
