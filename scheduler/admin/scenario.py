"""The page of scenarios: where N Pods of a template would land, by the live rules and by those of a Change."""

import threading
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.widgets import UnfoldAdminTextInputWidget

from policies.admin.base import change_url, person
from policies.admin.fields import YAMLField
from policies.wording import percentage
from scheduler.admin.links import node_url
from scheduler.backtest.runs import may_run
from scheduler.cluster.client import connect
from scheduler.decisions.time_limit import TimeLimit
from scheduler.scenario import (
    NOT_MODELLED,
    SECONDS,
    Scenario,
    ScenarioError,
    live_snapshot,
    recorded_snapshot,
    rules_of,
    template_of,
    template_of_deployment,
    work_out,
)

SEE = "scheduler.view_backtest"
_LARGEST = 2**31 - 1
_MOST_NODES = 500

# A scenario reads the whole cluster and computes for seconds: one at a time in a process.
_one_at_a_time = threading.Lock()


class ScenarioForm(forms.Form):
    """The template, the number of Pods, the rules, and the cluster."""

    deployment = forms.CharField(
        label="Deployment in the cluster",
        required=False,
        max_length=600,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "namespace/name"}),
        help_text="Scaled to the number below: places as many Pods as are missing.",
    )
    document = YAMLField(
        empty={},
        rows=12,
        label="Or a manifest as YAML",
        help_text="Of a Pod, a Deployment or another workload; Berth doesn't store it.",
    )
    pods = forms.IntegerField(
        label="Pods", min_value=1, max_value=_LARGEST, initial=10, widget=UnfoldAdminTextInputWidget()
    )
    change = forms.IntegerField(
        label="Change", required=False, min_value=1, max_value=_LARGEST, widget=UnfoldAdminTextInputWidget(),
        help_text="Also compares with this Change. Empty: only the live rules.",
    )  # fmt: skip
    decision = forms.UUIDField(
        label="Snapshot of a Decision", required=False, widget=UnfoldAdminTextInputWidget(),
        help_text="The ID of the Decision. Empty: the cluster as it is now.",
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        """Check that exactly one template is given."""
        cleaned = super().clean() or {}
        if not self.errors and bool(cleaned.get("deployment")) == bool(cleaned.get("document")):
            self.add_error(None, "Name a Deployment in the cluster, or paste a manifest.")
        return cleaned

    def work_out(self) -> Scenario | None:
        """Return the scenario; None if it fails, with the fault above the form."""
        if not _one_at_a_time.acquire(blocking=False):
            self.add_error(None, "Another scenario is running. Try again in a few seconds.")
            return None
        try:
            return self._work_out()
        except ScenarioError as error:
            self.add_error(None, str(error))
            return None
        finally:
            _one_at_a_time.release()

    def _work_out(self) -> Scenario:
        given = self.cleaned_data
        rules = rules_of(given["change"])
        if given["deployment"]:
            template = template_of_deployment(connect(), given["deployment"])
        else:
            template = template_of(given["document"])
        if given["decision"]:
            snapshot, at = recorded_snapshot(str(given["decision"]))
            return work_out(template, given["pods"], rules, snapshot, at, limit=TimeLimit(SECONDS))
        snapshot = live_snapshot(connect(), rules.reads)
        return work_out(template, given["pods"], rules, snapshot, limit=TimeLimit(SECONDS))


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """Show the form, and both sides beside each other."""
    may_ask = may_run(person(request))
    if request.method == "POST" and not may_ask:
        raise PermissionDenied
    initial = {name: request.GET[name] for name in ("change", "decision", "deployment") if name in request.GET}
    form = ScenarioForm(request.POST if request.method == "POST" else None, initial=initial)
    found = form.work_out() if form.is_bound and form.is_valid() else None
    context = {
        **admin.site.each_context(request),
        "title": "Scenario",
        "form": form,
        "may_ask": may_ask,
        "found": found and _shown(found),
        "not_modelled": NOT_MODELLED,
    }
    return TemplateResponse(request, "scheduler/scenario.html", context)


def _shown(found: Scenario) -> dict[str, Any]:
    sides = [("live", found.live), *([(f"Change {found.change}", found.drafted)] if found.drafted else [])]
    names = sorted({name for _, side in sides for name in side.nodes})
    balance = [
        (what, title, getattr(side.before, what), getattr(side.after, what))
        for what in ("cpu", "memory")
        for title, side in sides
    ]
    return {
        "scenario": found,
        "change_url": change_url(found.change) if found.change else "",
        "sides": [title for title, _ in sides],
        "balance": [
            (
                what,
                title,
                [percentage(each) for spread in (before, after) for each in (spread.min, spread.max, spread.deviation)],
            )
            for what, title, before, after in balance
        ],
        "nodes": [
            (name, node_url(name), [side.nodes.get(name, 0) for _, side in sides]) for name in names[:_MOST_NODES]
        ],
        "more": max(0, len(names) - _MOST_NODES),
    }
