"""Ongoing conditions of which users are notified: drift, lost Decisions, diverging shadows, approaching ends.

Each has a key. There is one Notice per condition from its begin to its end; a condition that begins again gets another one.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Max, Sum

from policies import publishing
from policies.engine.ruleset import Exemption
from policies.models import Change, ClusterPriorityClass
from scheduler.decisions.divergence import Divergence
from scheduler.models import DecisionGap, ShadowCount
from scheduler.notices import table

# The most conditions of each kind.
MOST = 500
# Decisions that were lost earlier get no Notice.
_LOST_WITHIN = timedelta(days=7)
_STATE = ClusterPriorityClass.State
_DRIFTED = (_STATE.REFUSED, _STATE.CONFLICT, _STATE.FOREIGN, _STATE.DRIFTED)
_DIVERGED = (Divergence.REFUSED_ALL, Divergence.REFUSED_NODE, Divergence.ANOTHER_NODE, Divergence.LET_PASS)

Found = Mapping[str, table.Draft]


def found_now(now: datetime) -> Mapping[table.Kind, Found]:
    """Return the present conditions, by kind and key."""
    return {
        table.Kind.DRIFT: _drift(now),
        table.Kind.DECISIONS_LOST: _lost(now),
        table.Kind.SHADOW_DIVERGES: _shadows(now),
        table.Kind.EXPIRY_AHEAD: _expiries(now),
    }


def _drift(now: datetime) -> Found:
    live = publishing.live_priority_classes()
    rows = ClusterPriorityClass.objects.filter(state__in=_DRIFTED, name__in=live)[:MOST]
    return {f"drift:{row.name}:{row.state}": table.drift(row.name, row.state, row.message, now) for row in rows}


def _lost(now: datetime) -> Found:
    """Return lost and missing Decisions: one condition for each dead process, even if some of its Decisions arrive later."""
    gaps = DecisionGap.objects.filter(at__gte=now - _LOST_WITHIN)
    found = {
        f"lost:{row.process}:{row.first}": table.decisions_lost(row.process, row.decisions, row.reason, now)
        for row in gaps.filter(may_return=False)[:MOST]
    }
    # Counted by the database: a process may leave many gaps, and those of others must not be pushed out of the list by them.
    number = Sum(F("last") - F("first") + 1)
    missing = gaps.filter(may_return=True).order_by().values("process").annotate(number=number, why=Max("reason"))
    for row in missing.order_by("process")[:MOST]:
        draft = table.decisions_lost(row["process"], row["number"], row["why"], now)
        found[f"lost:{row['process']}"] = draft
    return found


def _shadows(now: datetime) -> Found:
    keys = ("assignment", "rule_set", "rule_set_version")
    counts = ShadowCount.objects.filter(divergence__in=_DIVERGED, number__gt=0).order_by().values(*keys)
    rows = counts.annotate(total=Sum("number")).order_by(F("rule_set_version").desc(), *keys)[:MOST]
    return {
        "shadow:{assignment}:{rule_set}:{rule_set_version}".format(**row): table.shadow_diverges(
            row["assignment"], row["rule_set"], row["rule_set_version"], row["total"], now
        )
        for row in rows
    }


def _expiries(now: datetime) -> Found:
    return dict([*_changes_that_expire(now), *_exemptions_that_end(now)])


def _changes_that_expire(now: datetime) -> Iterable[tuple[str, table.Draft]]:
    soon = now + timedelta(days=settings.BERTH.exemption_notice_days)
    live = Change.objects.filter(
        state=Change.State.PUBLISHED, expired_at=None, expires_at__gt=now, expires_at__lte=soon
    )
    for row in live.order_by("expires_at")[:MOST]:
        if row.expires_at is not None:
            draft = table.change_expires(row.pk, row.title, row.expires_at, now)
            yield f"expiry:change:{row.pk}:{row.expires_at.isoformat()}", draft


def _exemptions_that_end(now: datetime) -> Iterable[tuple[str, table.Draft]]:
    for each in publishing.ending_soon(now):
        if isinstance(each.value, Exemption) and each.ends_at is not None:
            draft = table.exemption_ends(each.value.name, each.value.owner, each.what, each.ends_at, now)
            yield f"expiry:exemption:{each.value.name}:{each.ends_at.isoformat()}", draft
