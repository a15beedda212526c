"""The panel with its Decisions on the page of a rule set's version."""

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from policies.admin.base import decisions_url
from policies.admin.panels import add_panel
from policies.models import RuleSetVersion
from scheduler.admin.decision_list import verdict_of
from scheduler.admin.links import decision_url, pod_url
from scheduler.decisions.reading import recorded
from scheduler.decisions.replica import unless_away

_NEWEST = 5
_LARGEST = 2**31 - 1


@admin.site.admin_view
@permission_required("policies.view_ruleset", raise_exception=True)
@require_safe
def by_number(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Redirect to the page of a rule set's version."""
    del request
    version = get_object_or_404(RuleSetVersion, rule_set__name=name, number=min(number, _LARGEST))
    return HttpResponseRedirect(reverse("admin:policies_rulesetversion_change", args=[version.pk]))


def version_panel(version: RuleSetVersion, _: HttpRequest) -> SafeString:
    """Return the newest Decisions by a version, and the link to all of them; also to those in which each rule refused nodes."""
    asked = {"rule_set": version.rule_set.name, "rule_set_version": version.number}
    found = unless_away(lambda: list(recorded().filter(**asked).defer("body")[:_NEWEST]))
    if found is None:
        return render_to_string("scheduler/history_away.html")
    context = {
        "all": decisions_url(**asked),
        "no_node": decisions_url(**asked, answer="none"),
        "shadows": decisions_url(**asked, mode="shadow"),
        "rows": [
            {
                "row": row,
                "verdict": verdict_of(row),
                "url": decision_url(row.pk),
                "pod": pod_url(row.pod_namespace, row.pod_name, row.pod_uid),
            }
            for row in found
        ],
        "rules": [
            {"name": rule, "url": decisions_url(**asked, refused_by=rule)}
            for rule in sorted({rule for row in found for rule in row.refused_by.strip().splitlines()})
        ],
    }
    return render_to_string("scheduler/version_panel.html", context)


add_panel(RuleSetVersion, version_panel)
