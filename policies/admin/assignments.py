"""Assignments: the ordered list, and one Assignment's form."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from policies import checking, compiler, publishing
from policies.admin.base import change_url, link, person, rows_of, thing_urls
from policies.admin.editing import EditedChangeList, RowAdmin, RowForm
from policies.admin.fields import ChosenByName, NamesField, SelectorField, WholeField, YAMLField
from policies.admin.frame import ChangeList, display
from policies.engine import ruleset as engine
from policies.engine.conflicts import conflicts
from policies.engine.documents import read_assignment
from policies.engine.errors import Fault, RuleSetError
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, RULE_SET, in_force, paused_assignments
from policies.models import Assignment, RuleSet
from policies.publishing import Kind
from policies.sentences import assignment_sentence, match_sentence

_FIELDS = {
    "metadata.name": "name",
    "metadata.description": "description",
    "spec.order": "order",
    "spec.ruleSet": "rule_set",
    "spec.mode": "mode",
    "spec.percent": "percent",
    "spec.params": "params",
    "spec.match.schedulerNames": "scheduler_names",
    "spec.match.namespaces": "namespaces",
    "spec.match.namespaceSelector": "namespace_selector",
    "spec.match.podSelector": "pod_selector",
    "spec.match.priorityClassNames": "priority_class_names",
    "spec.match.ownerKinds": "owner_kinds",
}
_LIST = "admin:policies_assignment_changelist"
# How many of the Assignments that take precedence over one the list names.
_MOST_CONFLICTS = 3
_ANOTHER_ORDER = "Somebody else has published Assignments since you opened this page. Your order is kept: review the whole order again."
# The field loads names while one types; without JavaScript it offers none.
_WITHOUT_SCRIPTS = SafeString(
    "<noscript>Without JavaScript you can't choose another one here: import the Assignment as YAML, with Import… above the rule sets.</noscript>"
)
# Rows on a page of the order; rows of other pages keep their places.
_ON_A_PAGE = 200
# Characters of what was typed that a refusal repeats, and digits of a place.
_MOST_REPEATED, _MOST_DIGITS = 253, 7


class AssignmentChangeList(EditedChangeList):
    """A list whose rows carry which live Assignments take precedence over them, and whether they are paused."""

    def get_results(self, request: HttpRequest) -> None:
        """Read this for all rows of a page at once."""
        super().get_results(request)
        found: dict[str, list[str]] = {}
        shown = {row.name for row in self.result_list}
        live, now = publishing.current_revision(), timezone.now()
        paused = paused_assignments(live.pauses, now)
        for each in conflicts(live.assignments, shown):
            found.setdefault(each.name, []).append(each.sentence(paused))
        targets = {each.target for each in in_force(live.pauses, now)}
        for row in self.result_list:
            row.conflicts = found.get(row.name, [])
            own = {EVERYTHING, f"{ASSIGNMENT}/{row.name}", f"{RULE_SET}/{row.rule_set.name}"}
            row.is_paused = not targets.isdisjoint(own)


class AssignmentForm(RowForm):
    """An Assignment, checked by the engine."""

    kind = Kind.ASSIGNMENT
    places = _FIELDS
    scheduler_names = NamesField(
        label="Scheduler names", help_text="Values of schedulerName, separated by commas. Empty: any."
    )
    namespaces = NamesField(label="Namespaces", help_text="Separated by commas. Empty: any.")
    namespace_selector = SelectorField(
        label="Namespace labels", help_text="As in kubectl: team=web, tier in (a, b), !legacy. Empty: any."
    )
    pod_selector = SelectorField(
        label="Pod labels", help_text="As in kubectl: app=api, tier notin (batch), gpu. Empty: any."
    )
    priority_class_names = NamesField(label="PriorityClasses", help_text="Separated by commas. Empty: any.")
    owner_kinds = NamesField(
        label="Owner kinds",
        help_text="The Pod's controller, separated by commas: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, none. Empty: any.",
    )
    params = YAMLField(empty={}, label="Params", help_text="Overrides params of the rule set, as YAML: team: shop.")

    class Meta:
        model = Assignment
        fields = list(_FIELDS.values())
        field_classes = {"description": WholeField}

    def _get_validation_exclusions(self) -> set[str]:
        """Leave the constraint on percents to the engine, whose fault is shown at the field."""
        return super()._get_validation_exclusions() | {"percent"}  # type: ignore[misc,no-any-return]  # Django's hook

    def check_row(self) -> Sequence[Fault]:
        """Decode it with the engine, and compare its params with those of its rule set."""
        read = checking.read_assignment(compiler.assignment_document(self.instance))
        return publishing.misfitting_params(self.chosen(), read)


def _live_order() -> tuple[dict[str, engine.Assignment], str]:
    """Return the live Assignments in their order, and the order's digest."""
    with publishing.one_revision():
        live = publishing.asked_in_order(publishing.current_revision().assignments)
        return {each.name: each for each in live}, publishing.digest_of_order()


def _carried(typed: list[str], live: list[str]) -> list[str]:
    """Return a typed order of the Assignments that are live now; each new one follows the one that it follows live."""
    known = set(live)
    names = [name for name in dict.fromkeys(typed) if name in known]
    there = set(names)
    for place, name in enumerate(live):
        if name not in there:
            names.insert(names.index(live[place - 1]) + 1 if place else 0, name)
    return names


def _moved(names: list[str], move: str) -> list[str]:
    """Return names with one of them moved up or down by one place: "up NAME" or "down NAME"."""
    way, _, name = move.partition(" ")
    if name not in names or way not in {"up", "down"}:
        return names
    place = names.index(name)
    other = place - 1 if way == "up" else place + 1
    if 0 <= other < len(names):
        names[place], names[other] = names[other], names[place]
    return names


def _fault_of_place(names: list[str], name: str, place: str) -> str:
    """Return why a name can't be moved to a typed place, counted from 1; empty where it can."""
    if not name and not place:
        return "Type the name of an Assignment, and its new place."
    if name not in names:
        return f"There is no live Assignment “{name[:_MOST_REPEATED]}”."
    if not place.isdecimal() or len(place) > _MOST_DIGITS or not 1 <= int(place) <= len(names):
        return f"There is no place “{place[:_MOST_REPEATED]}”: places are 1 to {len(names):,}."
    return ""


def _moved_to(names: list[str], name: str, place: int) -> list[str]:
    others = [each for each in names if each != name]
    return [*others[: place - 1], name, *others[place - 1 :]]


@admin.register(Assignment)
class AssignmentAdmin(RowAdmin):
    """The pages of Assignments."""

    kind = Kind.ASSIGNMENT
    form = AssignmentForm
    list_display: tuple[str, ...] = ("order", "name_link", "matches", "gets", "mode_label", "last_edit")
    list_filter = ("mode",)
    linked_by = ("rule_set__name",)
    search_fields = ("name", "description", "rule_set__name")
    autocomplete_fields = ("rule_set",)
    fieldsets = (
        (None, {"fields": ("name", "description", ("order", "mode", "percent"), "rule_set", "params")}),
        (
            "Which Pods: all filled-in conditions must match",
            {
                "fields": (
                    ("scheduler_names", "priority_class_names"),
                    ("namespaces", "namespace_selector"),
                    ("pod_selector", "owner_kinds"),
                )
            },
        ),
    )
    empty_title = "No Assignment yet"
    empty_text = (
        "An Assignment says which Pods get which rule set. kube-scheduler places Pods that match no "
        "Assignment as if Berth weren't there. Publish a rule set first, then add an Assignment for it."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Assignment]:
        """Select the rule set in the same query."""
        return super().get_queryset(request).select_related("rule_set")

    def get_urls(self) -> list[URLPattern]:
        """Add the page of the order."""
        view = self.admin_site.admin_view(self.order)
        return [path("order/", view, name="policies_assignment_order"), *super().get_urls()]

    def order(self, request: HttpRequest) -> HttpResponse:
        """Show the live Assignments in their order, and put another order into a Change. Moving one writes nothing."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        live, digest = _live_order()
        faults: list[str] = []
        if request.method == "POST" and request.POST.get("digest") != digest:
            faults = [_ANOTHER_ORDER]
        names = _carried(request.POST.get("names", "").split(), list(live))
        typed = [request.POST.get(each, "").strip() for each in ("move_name", "move_place")]
        # Enter presses a form's first button: it moves what is typed in the fields for a place, else it saves.
        moves_to = request.POST.get("move") == "to" or ("enter" in request.POST and any(typed))
        if {"save", "enter"} & request.POST.keys() and not moves_to:
            try:
                made = publishing.reorder(
                    names=names,
                    by=person(request),
                    reason=request.POST.get("reason", "").strip(),
                    expected_digest=request.POST.get("digest", "") or "none",
                )
            except publishing.PublishingError as error:
                faults = error.messages
                live, digest = _live_order()
                names = _carried(names, list(live))
            else:
                messages.success(request, f"The order is in {made}. It isn't live until that Change is published.")
                return HttpResponseRedirect(change_url(made.pk))
        names, shows = _moved(names, request.POST.get("move", "")), ""
        if moves_to and (fault := _fault_of_place(names, *typed)):
            faults = [*faults, fault]
        elif moves_to:
            names, shows, typed = _moved_to(names, typed[0], int(typed[1])), typed[0], ["", ""]
        page = self._order_page(request, live, names, faults, shows) | {"digest": digest, "typed": typed}
        return TemplateResponse(request, "policies/assignment_order.html", page)

    def _order_page(
        self, request: HttpRequest, live: dict[str, engine.Assignment], names: list[str], faults: list[str], shows: str
    ) -> dict[str, Any]:
        asked: Any = request.POST.get("p") or request.GET.get("p")
        if shows in names:
            asked = names.index(shows) // _ON_A_PAGE + 1
        page = Paginator(names, _ON_A_PAGE).get_page(asked)
        orders = publishing.orders_for(live.values(), names)
        pages = thing_urls(rows_of((Kind.ASSIGNMENT, name) for name in page))
        rows = [
            {
                "name": name,
                "url": pages.get((Kind.ASSIGNMENT, name), ""),
                "place": place,
                "order": live[name].order,
                "becomes": orders.get(name),
                "says": assignment_sentence(live[name]).partition(", ")[2],
            }
            for place, name in enumerate(page, page.start_index())
        ]
        return {
            **self.admin_site.each_context(request),
            "title": "The order of Assignments",
            "opts": self.opts,
            "rows": rows,
            "page": page,
            "names": " ".join(names),
            "moved": len(orders),
            "faults": faults,
            "reason": request.POST.get("reason", ""),
            "back": reverse(_LIST),
        }

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Search for the rule set by a part of its name."""
        if db_field.name == "rule_set":
            kwargs |= {"widget": ChosenByName(db_field, self.admin_site), "help_text": _WITHOUT_SCRIPTS}
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Leave out the pop-ups beside the rule set: a rule set has its own pages."""
        form = super().get_form(request, obj, change, **kwargs)
        if "rule_set" in form.base_fields:
            for act in ("add", "change", "delete", "view"):
                setattr(form.base_fields["rule_set"].widget, f"can_{act}_related", False)
            form.base_fields["rule_set"].queryset = publishing.rule_sets_in_use()
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Assignment | None = None) -> Any:
        """Make the name read-only: Decisions and the Revision refer to the Assignment by it."""
        return ("name",) if obj else ()

    def get_fieldsets(self, request: HttpRequest, obj: Assignment | None = None) -> Any:
        """Show a sentence in place of a form to users who may not change it."""
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fieldsets(request, obj)
        return ((None, {"fields": ("name", "description", "in_words", "gets")}),)

    def columns_of(self, value: Any) -> dict[str, Any]:
        """Return the columns of an Assignment's row."""
        rule_set = RuleSet.objects.filter(name=value.rule_set).first()
        return compiler.assignment_fields(value, rule_set=rule_set)  # type: ignore[arg-type] # one that is missing is to be chosen

    def value_of(self, row: Any) -> engine.Assignment:
        """Return an Assignment."""
        return read_assignment(compiler.assignment_document(row))

    @display(description="Takes")
    def matches(self, row: Assignment) -> SafeString | str:
        """Return which Pods it matches, in words, and which of them an earlier Assignment takes."""
        try:
            says = match_sentence(self.value_of(row).match)
        except RuleSetError as error:
            return f"faulty: {error}"
        found = getattr(row, "conflicts", [])
        more = f" …and {len(found) - _MOST_CONFLICTS} more." if len(found) > _MOST_CONFLICTS else ""
        lines = format_html_join(
            "", '<br>! <span class="berth-warned">{}.</span>', ((line,) for line in found[:_MOST_CONFLICTS])
        )
        return format_html("{}{}{}", says, lines, more)

    @display(description="What it does")
    def in_words(self, row: Assignment) -> str:
        """Return which Pods it matches and what they get."""
        try:
            return assignment_sentence(self.value_of(row))
        except RuleSetError as error:
            return f"faulty: {error}"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list that shows which Assignments take precedence."""
        return AssignmentChangeList

    @display(description="Gives", ordering="rule_set__name")
    def gets(self, row: Assignment) -> Any:
        """Link to the rule set."""
        return link(reverse("admin:policies_ruleset_change", args=[row.rule_set_id]), row.rule_set)

    @display(
        description="Mode",
        ordering="mode",
        label={"enforce": "info", "shadow": "warning", "canary": "warning", "paused": "danger"},
    )
    def mode_label(self, row: Assignment) -> tuple[str, str]:
        """Return the mode, with the percent of a canary, and whether a Pause of it, of its rule set or of everything is in force."""
        mode = f"canary {row.percent} %" if row.percent is not None else row.mode
        return ("paused", f"{mode}, paused") if getattr(row, "is_paused", False) else (row.mode, mode)
