"""Facts about the live rules for the lint, which needs them to decide whether a setting does harm."""

import msgspec

from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision, RuleSet

# Berth's default deadline, after which it answers with the results so far.
_DEADLINE_SECONDS = 1.5


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about Berth's side. None: not known; a finding that depends on it then says so or is omitted."""

    # An enforced Assignment refers to a rule set with an enforced filter.
    refuses: bool | None = None
    scores: bool | None = None
    # An enforced filter is evaluated again at binding.
    counts_pods: bool | None = None
    protects_victims: bool | None = None
    deadline_seconds: float = _DEADLINE_SECONDS
    # The schedulerNames of Pods that Berth binds itself (BERTH_SCHEDULER_NAMES); kube-scheduler must not take them too.
    own_schedulers: tuple[str, ...] = ("berth",)
    # The addresses of Berth's extender, which distinguish it from other extenders.
    urls: tuple[str, ...] = ()
    # The path before the verbs (BERTH_EXTENDER_SECRET_PATH). It is shown to nobody.
    secret_path: str = ""


def known_of(revision: Revision, known: Known | None = None) -> Known:
    """Return the facts in the live Revision; the others stay as in `known`.

    Raises:
        ExpressionError, msgspec.ValidationError, KeyError: the Revision can't be compiled by this version of Berth.
    """
    enforced = {assignment.rule_set for assignment in revision.assignments if assignment.mode != "shadow"}
    live = [rule_set for rule_set in revision.rule_sets if rule_set.name in enforced]
    compiled = CompiledRevision(revision)
    return msgspec.structs.replace(
        known or Known(),
        refuses=any(_enforces(rule_set, "filters") for rule_set in live),
        scores=any(_enforces(rule_set, "scores") for rule_set in live),
        protects_victims=any(_enforces(rule_set, "victims") for rule_set in live),
        counts_pods=any(compiled.rule_sets[rule_set.name].only_counting().filters for rule_set in live),
    )


def _enforces(rule_set: RuleSet, kind: str) -> bool:
    return any(rule.mode == "enforce" for rule in getattr(rule_set.spec, kind, ()))
