"""The approvals that a Change needs: by the environment's settings, and by those that administrators set."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from policies.models import ReviewSetting, RuleSet
from policies.publishing import audit, locks
from policies.publishing.actors import By, check_not_set_since, has_just_set, may, name_of, user_of
from policies.publishing.errors import PublishingError, fault_of_words
from policies.publishing.lifecycle import Need
from policies.publishing.locks import Lock

_MOST_APPROVALS = 20


def review_settings() -> list[ReviewSetting]:
    """Return the settings in force: the newest for all Changes, and the newest for each rule set that has one."""
    newest = ReviewSetting.objects.order_by().values("rule_set").annotate(newest=Max("pk")).values("newest")
    return list(ReviewSetting.objects.filter(pk__in=newest).order_by("rule_set"))


def needs_of(
    rule_sets: Iterable[str],
    *,
    rolls_back: bool = False,
    pauses: bool = False,
    rows: Iterable[ReviewSetting] | None = None,
) -> list[Need]:
    """Return every need for approvals to touch these rule sets. All of them have to be met.

    Args:
        rule_sets: the names of the rule sets that are touched, see `touched`.
        rolls_back: whether the Change only restores content of an older Revision.
        pauses: whether the Change only adds Pauses.
        rows: the result of `review_settings`, if it was read before.
    """
    berth, named = settings.BERTH, {"", *rule_sets}
    is_free_pause = pauses and not berth.review_pauses
    needs = []
    if berth.review_required and (berth.review_roll_backs or not rolls_back) and not is_free_pause:
        needs.append(Need("every Change", berth.review_approvals))
    for row in review_settings() if rows is None else rows:
        if row.rule_set in named and row.approvals and (row.roll_backs or not (rolls_back or is_free_pause)):
            scope = f"rule set {row.rule_set}" if row.rule_set else "every Change"
            needs.append(Need(scope, row.approvals, row.group))
    return needs


@transaction.atomic
def set_review(
    *,
    rule_set: str = "",
    approvals: int,
    by: By,
    group: str = "",
    roll_backs: bool = True,
    reason: str = "",
    seen: int | None = None,
    told: int | None = None,
) -> ReviewSetting:
    """Set the approvals that all Changes, or those that touch a rule set, need from now on. A form that is sent twice sets them once.

    `seen` is the newest review setting when that person looked, `told` one that they were told of since, see `check_not_set_since`.

    Raises:
        OvertakenError: somebody else set them since.
        PublishingError: this account may not do it, there is no such rule set or group, or the reason could mislead its readers.
    """
    faults = []
    if not may(by, "policies.add_reviewsetting"):
        faults.append(f"{name_of(by)} may not change how Changes are reviewed; an administrator may.")
    if not 0 <= approvals <= _MOST_APPROVALS:
        faults.append(f"{approvals} isn't a number of approvals: 0 to {_MOST_APPROVALS}.")
    if group and not approvals:
        faults.append(f"Say how many people of {group} have to approve.")
    if rule_set and not RuleSet.objects.filter(name=rule_set).exists():
        faults.append(f"There is no rule set {rule_set}.")
    if group and not Group.objects.filter(name=group).exists():
        faults.append(f"There is no group {group}; create it first, and add the people who approve.")
    if said := fault_of_words(reason):
        faults.append(said)
    if faults:
        raise PublishingError(faults)
    locks.take(Lock.SETTINGS)
    before = ReviewSetting.objects.filter(rule_set=rule_set).first()
    wanted: dict[str, Any] = {"approvals": approvals, "group": group, "roll_backs": roll_backs}
    if before and has_just_set(before, by, wanted | {"reason": reason}):
        return before
    if before:
        check_not_set_since(before, seen, f"Required approvals: {sentence_of(before)}.", told=told)
    former = audit.digest_of({name: getattr(before, name) for name in wanted}) if before else ""
    audit.record_event(
        audit.Kind.REVIEW_SET,
        by=by,
        thing=("RuleSet", rule_set) if rule_set else ("", ""),
        digests=(former, audit.digest_of(wanted)),
        reason=reason,
        more=wanted,
    )
    return ReviewSetting.objects.create(
        **wanted,
        rule_set=rule_set,
        reason=reason,
        set_by=name_of(by),
        set_by_user=user_of(by),
        set_at=timezone.now(),
    )


def sentence_of(setting: ReviewSetting) -> str:
    """Return a setting as a sentence."""
    if not setting.approvals:
        return "nothing beyond the environment's settings"
    people = "person" if setting.approvals == 1 else "people"
    of = f" of {setting.group}" if setting.group else ""
    free = "" if setting.roll_backs else "; roll-backs need none"
    return f"{setting.approvals} {people}{of} who didn't edit it{free}"
