"""The page of previews: a draft's results for one Pod, beside the live version's; and saving them as a test of the draft."""

import threading
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_POST
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from policies import manifests, publishing
from policies.admin.base import change_url, edit_url, number_in, person
from policies.admin.fields import YAMLField
from policies.admin.panels import add_draft_link
from policies.admin.rule_tests import results_of, say_results, with_test
from policies.engine import ruleset as engine
from policies.engine.errors import RuleSetError
from policies.models import Change
from policies.models.ruleset import validate_name
from policies.publishing import Kind, PublishingError, lifecycle
from scheduler.admin.links import node_url, preview_url
from scheduler.cluster.client import connect
from scheduler.decisions.beside import Both
from scheduler.decisions.matrix import Cell
from scheduler.preview import (
    NOT_IN_IT,
    Preview,
    PreviewError,
    pending_pods,
    pod_of_decision,
    preview,
)
from scheduler.scenario import ScenarioError, live_snapshot, pod_of_cluster, rules_of

SEE = "scheduler.view_decision"
EDIT = "policies.change_rulesetversion"
_LARGEST = 2**31 - 1
# The most groups of nodes on a page.
_MOST_ROWS = 100
# The most names in an expanded group of nodes.
_NAMES = 200
_MOST_DRAFTS = 50
_CLOSED = (
    "That Change can no longer be edited: nothing was saved. Copy the test into the rule set's tests in another Change."
)
# The most characters of a test that can be saved: people read it.
_LONGEST_TEST = 200_000

# A preview reads the whole cluster: one at a time in a process.
_one_at_a_time = threading.Lock()


class PreviewForm(forms.Form):
    """The draft's rule set, and the Pod."""

    rule_set = forms.CharField(max_length=63, widget=forms.HiddenInput)
    change = forms.IntegerField(required=False, min_value=1, max_value=_LARGEST, widget=forms.HiddenInput)
    pending = forms.ChoiceField(label="A pending Pod", required=False, widget=UnfoldAdminSelectWidget)
    pod = forms.CharField(
        label="Or another Pod in the cluster",
        required=False,
        max_length=600,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "namespace/name"}),
    )
    decision = forms.UUIDField(
        label="Or the Pod of a Decision",
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "its ID"}),
        help_text="The Pod as it was then, with the nodes as they are now.",
    )
    document = YAMLField(
        empty={},
        rows=8,
        label="Or a Pod as YAML",
        help_text="The Pod doesn't have to exist in the cluster; Berth doesn't store it.",
    )

    why = forms.CharField(label="Node", required=False, max_length=253)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.away = ""
        try:
            waiting = pending_pods(connect())
        except PreviewError as error:
            waiting, self.away = [], str(error)
        sent = str(self.data.get("pending", ""))
        named = [sent] if sent and sent not in waiting else []
        nobody = "not known" if self.away else "none" if waiting else "no Pod is pending"
        choices = [("", nobody), *((each, each) for each in [*waiting, *named])]
        self.fields["pending"].choices = choices  # type: ignore[attr-defined] # as declared

    def clean(self) -> dict[str, Any]:
        """Check that exactly one Pod is given."""
        cleaned = super().clean() or {}
        given = [name for name in ("pending", "pod", "decision", "document") if cleaned.get(name)]
        if not self.errors and len(given) != 1:
            self.add_error(None, "Choose one Pod: a pending one, another one, the Pod of a Decision, or one as YAML.")
        return cleaned

    def work_out(self) -> Preview | None:
        """Return the preview; None if it fails, with the fault above the form."""
        if not _one_at_a_time.acquire(blocking=False):
            self.add_error(None, "Another preview is running. Try again in a few seconds.")
            return None
        try:
            rules = rules_of(self.cleaned_data["change"])
            snapshot = live_snapshot(connect(), rules.reads)
            given = self.cleaned_data
            return preview(self._pod(), given["rule_set"], rules, snapshot, why=given["why"].strip())
        except (PreviewError, ScenarioError) as error:
            self.add_error(None, str(error))
            return None
        finally:
            _one_at_a_time.release()

    def _pod(self) -> dict[str, Any]:
        given = self.cleaned_data
        if named := given["pending"] or given["pod"]:
            return pod_of_cluster(connect(), named)
        if given["decision"]:
            return pod_of_decision(str(given["decision"]))
        document: dict[str, Any] = given["document"]
        return document


class TestForm(forms.Form):
    """A test to save in its Change."""

    rule_set = forms.CharField(max_length=63, widget=forms.HiddenInput)
    change = forms.IntegerField(min_value=1, max_value=_LARGEST, widget=forms.HiddenInput)
    seen = forms.CharField(max_length=200, widget=forms.HiddenInput)
    test = YAMLField(
        empty={},
        label="The test",
        max_length=_LONGEST_TEST,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 16, "class": "berth-code", "spellcheck": "false"}),
        help_text="The test expects the draft's current results. Change them to the results that you want.",
    )


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """Show the form for a Pod, and both sides' results."""
    may_ask = request.user.has_perm(EDIT)
    if request.method == "POST" and not may_ask:
        raise PermissionDenied
    initial = {name: value for name, value in request.GET.items() if name in PreviewForm.base_fields}
    form = PreviewForm(request.POST if request.method == "POST" else None, initial=initial)
    # Before the draft is decided on, which takes a while: a test of it isn't saved over a colleague's next draft.
    seen = _seen_of(form)
    found = form.work_out() if form.is_bound and form.is_valid() else None
    return _page(request, form, found, may_ask=may_ask, seen=seen)


def _seen_of(form: PreviewForm) -> str:
    change = _open_change(form["change"].value())
    return publishing.seen_of(change, (Kind.RULE_SET, _name_in(form))) if change else ""


def _name_in(form: PreviewForm) -> str:
    """Return the rule set that a form names; empty for a text that can't be one: it is looked for before the form is checked."""
    name = str(form["rule_set"].value() or "")
    try:
        validate_name(name)
    except ValidationError:
        return ""
    return name


def _page(
    request: HttpRequest,
    form: PreviewForm,
    found: Preview | None,
    *,
    may_ask: bool,
    seen: str = "",
    test: TestForm | None = None,
) -> HttpResponse:
    name = _name_in(form)
    change = _open_change(form["change"].value())
    asked = {each: str(form[each].value() or "") for each in ("pod", "decision")}
    context = {
        **admin.site.each_context(request),
        "drafts": _drafts(name, asked) if may_ask and not change and not found else [],
        "title": f"Preview of {name}" if name else "Preview",
        "form": form,
        "asks": [form[each] for each in ("pending", "pod", "decision", "document")],
        "may_ask": may_ask,
        "name": name,
        "change": change,
        "change_url": change_url(change.pk) if change else "",
        "edit_url": edit_url(Kind.RULE_SET, name, change) if name and may_ask else "",
        "found": found and _shown(found, request.GET.get("p")),
        "test": test or (_test_form(found, name, change, seen) if found and found.test and change else None),
        "not_in_it": NOT_IN_IT,
    }
    return TemplateResponse(request, "scheduler/preview.html", context)


def _drafts(name: str, asked: dict[str, str]) -> list[tuple[str, str]]:
    """Return the rule sets with open edits, the named one first, each with the URL that previews it for the same Pod."""
    found = list(publishing.open_edits(Kind.RULE_SET).exclude(document=""))
    found.sort(key=lambda each: (each.name != name, each.name, -each.change.pk))
    return [
        (
            f"{each.name} in {each.change}: {each.change.title}",
            preview_url(each.name, change=str(each.change.pk), **asked),
        )
        for each in found[:_MOST_DRAFTS]
    ]


def _open_change(number: Any) -> Change | None:
    """Return the Change, if it can still be edited."""
    return Change.objects.filter(pk=number_in(str(number or "")) or 0, state__in=lifecycle.OPEN).first()


def _test_form(found: Preview, name: str, change: Change, seen: str) -> TestForm:
    text = manifests.to_yaml(dict(found.test))
    return TestForm(initial={"rule_set": name, "change": change.pk, "seen": seen, "test": text})


def _shown(found: Preview, number: Any) -> dict[str, Any]:
    sides = [side for side in (found.draft, found.live) if side]
    page = Paginator(found.both, _MOST_ROWS).get_page(number)
    differing = sum(len(each.nodes) for each in found.both if each.differs)
    return {
        "preview": found,
        "sides": [(side, len(_columns(side)) + 1) for side in sides],
        "columns": [(side, _columns(side)) for side in sides],
        "differing": differing,
        "rows": [_row(each, _names(found)) for each in page],
        "more": max(len(found.both) - _MOST_ROWS, 0),
    }


def _columns(side: Any) -> list[str]:
    return [*side.judged.matrix.filters, *side.judged.matrix.scores]


def _names(found: Preview) -> tuple[list[str], list[str]]:
    return _columns(found.draft), _columns(found.live) if found.live else []


def _row(both: Both, names: tuple[list[str], list[str]]) -> dict[str, Any]:
    live = dict(zip(names[1], both.live.cells, strict=True)) if both.live else {}
    return {
        "both": both,
        "first": both.nodes[0],
        "url": node_url(both.nodes[0]),
        "more": len(both.nodes) - 1,
        "names": both.nodes[1:_NAMES],
        "unnamed": max(len(both.nodes) - _NAMES, 0),
        "draft": [
            (cell, name in live and _differs(cell, live[name]))
            for name, cell in zip(names[0], both.draft.cells, strict=True)
        ],
        "live": both.live.cells if both.live else [],
    }


def _differs(one: Cell, other: Cell) -> bool:
    return (one.text, one.reason) != (other.text, other.reason)


@admin.site.admin_view
@permission_required(EDIT, raise_exception=True)
@require_POST
def save_test(request: HttpRequest) -> HttpResponse:
    """Save a test in the draft: an edit of its Change as the form makes it, by the same verb."""
    form = TestForm(request.POST)
    change = _open_change(request.POST.get("change"))
    if form.is_valid() and change is not None and _saved(request, form, change):
        return HttpResponseRedirect(edit_url(Kind.RULE_SET, form.cleaned_data["rule_set"], change))
    if change is None:
        form.add_error(None, _CLOSED)
    asked = PreviewForm(
        initial={"rule_set": request.POST.get("rule_set", ""), "change": change.pk if change is not None else None}
    )
    return _page(request, asked, None, may_ask=True, test=form)


def _saved(request: HttpRequest, form: TestForm, change: Change) -> bool:
    name = form.cleaned_data["rule_set"]
    draft = publishing.found_in(change, (Kind.RULE_SET, name)).value
    if not isinstance(draft, engine.RuleSet):
        form.add_error(None, f"{change} has no rule set {name}.")
        return False
    try:
        wanted = with_test(draft, form.cleaned_data["test"])
        publishing.save_edit(
            edit=publishing.Edit.of(wanted),
            change=change,
            by=person(request),
            title="",
            seen=form.cleaned_data["seen"],
        )
    except RuleSetError as error:
        for fault in error.faults:
            form.add_error("test", str(fault))
        return False
    except PublishingError as error:
        for said in error.messages:
            form.add_error(None, said)
        return False
    messages.success(request, f"The test “{form.cleaned_data['test']['name']}” is in {change}.")
    say_results(request, results_of(wanted))
    return True


def _draft_link(name: str, change: Change | None) -> tuple[str, str]:
    return "Preview on a Pod", preview_url(name, change=str(change.pk) if change else "")


add_draft_link(_draft_link)
