"""The list of rule sets, with the number of Pods that each was asked about today."""

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies.admin.base import decisions_url, link
from policies.admin.frame import ChangeList, display
from policies.admin.rule_sets import LiveChangeList, RuleSetAdmin
from policies.models import RuleSet
from scheduler.decisions.replica import HISTORY_AWAY, unless_away
from scheduler.decisions.today import Asked, asked_since

admin.site.unregister(RuleSet)


class _AskedChangeList(LiveChangeList):
    """A list whose rows have the number of Pods that they were asked about."""

    def get_results(self, request: HttpRequest) -> None:
        """Query for all rows of a page at once."""
        super().get_results(request)
        midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
        found = unless_away(lambda: asked_since([row.name for row in self.result_list], midnight))
        for row in self.result_list:
            row.asked = None if found is None else found.get(row.name, Asked(0, 0, is_part=False))


@admin.register(RuleSet)
class AskedRuleSetAdmin(RuleSetAdmin):
    """The pages of rule sets, with their use."""

    list_display = ("name", "about", "state", "pods_today", "number_of_assignments", "owner", "last_change")

    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[ChangeList]:
        """Return the list whose rows have the live versions, and the numbers of Pods."""
        return _AskedChangeList

    @display(description="Pods today")
    def pods_today(self, row: RuleSet) -> SafeString | str:
        """Return the number of Pods that it was asked about since midnight UTC, and how many of them got no node."""
        asked: Asked | None = getattr(row, "asked", Asked(0, 0, is_part=False))
        if asked is None:
            return HISTORY_AWAY
        if not asked.pods:
            return "none"
        more = " at least" if asked.is_part else ""
        says = f"{asked.pods:,}{more}, {asked.refused:,} refused"
        url = decisions_url(rule_set=row.name, **{"from": f"{timezone.now():%Y-%m-%d}"})
        return format_html('<span class="berth-nowrap">{}</span>', link(url, says))
