"""Counts the Decisions of the last day in which each rule of a rule set refused nodes: shown at the rule, on the page that edits it."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from django.utils import timezone

from policies.admin.panels import add_rule_counts
from policies.wording import counted
from scheduler.decisions.reading import recorded
from scheduler.decisions.replica import unless_away
from scheduler.models import OPENING_VERBS

# The most Decisions that a page reads, the newest: an index has them by rule set and time.
MOST_LOOKED_AT = 2_000
_DAY = timedelta(days=1)


def refused_in_a_day(name: str) -> Mapping[str, str]:
    """Return the counts in words, by the rule's name; only of rules that refused any nodes."""
    asked = recorded().filter(rule_set=name, at__gte=timezone.now() - _DAY).order_by("-at")
    rows = unless_away(lambda: list(asked.values_list("verb", "mode", "refused_by")[:MOST_LOOKED_AT])) or []
    filtered = [refused_by for verb, mode, refused_by in rows if mode == "enforce" and verb in OPENING_VERBS]
    counts = Counter(rule for refused_by in filtered for rule in refused_by.strip().splitlines())
    among = f"of the newest {MOST_LOOKED_AT:,}" if len(rows) == MOST_LOOKED_AT else "in 24 h"
    of = f"{counted(len(filtered), 'Decision')} {among}"
    return {rule: f"refused nodes in {number:,} of {of}" for rule, number in counts.items()}


add_rule_counts(refused_in_a_day)
