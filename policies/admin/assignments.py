"""Assignments: the ordered list, one Assignment's form, and publishing what differs from what is live."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from policies import compiler, publishing, wording
from policies.admin.base import Confirmation, confirm, link, person
from policies.admin.fields import NamesField, SelectorField
from policies.admin.frame import ActionVariant, ChangeList, ModelAdmin, ModelForm, action, display
from policies.admin.rule_sets import may_publish
from policies.engine.errors import RuleSetError
from policies.engine.validation import read_assignment
from policies.models import Assignment

_FIELDS = {
    "metadata.name": "name",
    "metadata.description": "description",
    "spec.order": "order",
    "spec.ruleSet": "rule_set",
    "spec.mode": "mode",
    "spec.match.schedulerNames": "scheduler_names",
    "spec.match.namespaces": "namespaces",
    "spec.match.namespaceSelector": "namespace_selector",
    "spec.match.podSelector": "pod_selector",
    "spec.match.priorityClassNames": "priority_class_names",
}
_LIST = "admin:policies_assignment_changelist"


class AssignmentForm(ModelForm):
    """An Assignment, checked as the engine does."""

    scheduler_names = NamesField(label="Scheduler names", help_text="The Pod's schedulerName, by commas. Empty: any.")
    namespaces = NamesField(label="Namespaces", help_text="By commas. Empty: any.")
    namespace_selector = SelectorField(
        label="Namespace labels", help_text="As in kubectl: team=web, tier in (a, b), !legacy. Empty: any."
    )
    pod_selector = SelectorField(
        label="Pod labels", help_text="As in kubectl: app=api, tier notin (batch), gpu. Empty: any."
    )
    priority_class_names = NamesField(label="PriorityClasses", help_text="By commas. Empty: any.")

    class Meta:
        model = Assignment
        fields = list(_FIELDS.values())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "description" in self.fields:
            self.fields["description"].widget.attrs["rows"] = 2

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # ModelForm's hook: the instance has the typed values after it
        if self.errors:
            return
        try:
            read_assignment(compiler.assignment_document(self.instance))
        except RuleSetError as error:
            for fault in error.faults:
                place = next((name for path, name in _FIELDS.items() if fault.path.startswith(path)), None)
                self.add_error(place, fault.message)


class _AssignmentChangeList(ChangeList):
    """A list whose rows know how they differ from what is live."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        differing = publishing.unpublished_assignments()
        for row in self.result_list:
            row.differing = differing.get(row.name, "")


@admin.register(Assignment)
class AssignmentAdmin(ModelAdmin):
    """The pages of Assignments."""

    form = AssignmentForm
    list_display = ("order", "name_link", "matches", "gets", "mode_label", "live_label")
    list_display_links = ("name_link",)
    list_filter = ("mode", "rule_set")
    search_fields = ("name", "description", "rule_set__name")
    actions_list = ("publish_all",)
    actions_submit_line = ("save_and_publish",)
    list_before_template = "policies/unpublished_assignments.html"
    fieldsets = (
        (None, {"fields": ("name", "description", ("order", "mode"), "rule_set")}),
        (
            "Which Pods: all that is given must hold",
            {
                "fields": (
                    ("scheduler_names", "priority_class_names"),
                    ("namespaces", "namespace_selector"),
                    "pod_selector",
                )
            },
        ),
    )
    empty_title = "No Assignment yet"
    empty_text = (
        "An Assignment says which Pods get which rule set. kube-scheduler places Pods that none matches as if "
        "Berth were not there. Publish a rule set first, then add an Assignment for it."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Assignment]:
        """Bring the rule set along."""
        return super().get_queryset(request).select_related("rule_set")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list that knows what is live."""
        return _AssignmentChangeList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Say what is not live yet."""
        extra = {"differing": publishing.unpublished_assignments(), "may_publish": may_publish(request)}
        return super().changelist_view(request, {**(extra_context or {}), **extra})

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Leave out the pop-ups beside the rule set: a rule set has pages of its own."""
        form = super().get_form(request, obj, change, **kwargs)
        if "rule_set" in form.base_fields:
            for act in ("add", "change", "delete", "view"):
                setattr(form.base_fields["rule_set"].widget, f"can_{act}_related", False)
        return form

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Leave out buttons that lead to what saving leads to anyway."""
        less = {"show_save_and_continue": False, "show_save_and_add_another": False}
        return super().render_change_form(request, {**context, **less}, *args, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Assignment | None = None) -> Any:
        """Keep the name: Decisions and the Revision know the Assignment by it."""
        return ("name",) if obj else ()

    def has_publish_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Tell whether this person may publish."""
        return may_publish(request)

    def save_model(self, request: HttpRequest, obj: Assignment, form: Any, change: Any) -> None:
        """Save by the one place where state changes."""
        row = Assignment.objects.get(pk=obj.pk) if change else None
        value = read_assignment(compiler.assignment_document(obj))
        saved, _changed = publishing.save_assignment(assignment=value, row=row, by=person(request))
        obj.pk = saved.pk

    def response_add(self, request: HttpRequest, obj: Assignment, post_url_continue: Any = None) -> HttpResponse:
        """Go on to publishing, or to the list that says what isn't live."""
        return self._after_saving(request, obj)

    def response_change(self, request: HttpRequest, obj: Assignment) -> HttpResponse:
        """Go on to publishing, or to the list that says what isn't live."""
        return self._after_saving(request, obj)

    def _after_saving(self, request: HttpRequest, obj: Assignment) -> HttpResponse:
        if "policies_assignment_save_and_publish" in request.POST:
            return HttpResponseRedirect(reverse("admin:policies_assignment_publish_all"))
        messages.success(request, f"{obj} is saved. It is live once the Assignments are published.")
        return HttpResponseRedirect(reverse(_LIST))

    @action(description="Save and publish…", permissions=["publish"])
    def save_and_publish(self, request: HttpRequest, obj: Assignment) -> None:
        """Do nothing more than save: the response goes on to the publishing page."""

    @action(
        description="Publish Assignments",
        permissions=["publish"],
        url_path="publish",
        variant=ActionVariant.PRIMARY,
        icon="rocket_launch",
    )
    def publish_all(self, request: HttpRequest) -> HttpResponse:
        """Show what publishing would do, and do it."""
        return confirm(
            self,
            request,
            _publishing_page(),
            lambda reason, _digest: publishing.publish_assignments(by=person(request), reason=reason),
        )

    @display(description="Name", ordering="name")
    def name_link(self, row: Assignment) -> str:
        """Name it."""
        return row.name

    @display(description="Takes")
    def matches(self, row: Assignment) -> str:
        """Give which Pods it takes, in words."""
        try:
            return wording.match_sentence(read_assignment(compiler.assignment_document(row)).match)
        except RuleSetError as error:
            return f"faulty: {error}"

    @display(description="Gives", ordering="rule_set__name")
    def gets(self, row: Assignment) -> Any:
        """Link to the rule set."""
        return link(reverse("admin:policies_ruleset_change", args=[row.rule_set_id]), row.rule_set)

    @display(description="Mode", ordering="mode", label={"enforce": "info", "shadow": "warning"})
    def mode_label(self, row: Assignment) -> str:
        """Give the mode."""
        return row.mode

    @display(description="Live?", label={"live": "success", "not live: new": "warning", "not live: changed": "warning"})
    def live_label(self, row: Assignment) -> str:
        """Say whether it is live as it stands here."""
        differing = getattr(row, "differing", "")
        return f"not live: {differing}" if differing else "live"


def _publishing_page() -> Confirmation:
    current = publishing.current_revision()
    live = {each.name: each for each in current.assignments}
    wanted = {}
    page = Confirmation(
        title="Publish Assignments",
        effect=f"Makes Revision {current.number + 1} with the Assignments as they are here.",
        button="Publish",
        back=reverse(_LIST),
    )
    faults = []
    published = {rule_set.name for rule_set in current.rule_sets}
    for row in Assignment.objects.select_related("rule_set"):
        try:
            wanted[row.name] = read_assignment(compiler.assignment_document(row))
        except RuleSetError as error:
            faults += [f"{row.name}: {fault}" for fault in error.faults]
        if row.rule_set.name not in published:
            faults.append(f"{row.name}: rule set {row.rule_set} has no published version; publish it first.")
    after = compiler.revision_document(
        number=0,
        published_at="",
        rule_sets=current.rule_sets,
        assignments=list(wanted.values()),
        priority_classes=current.priority_classes,
    )
    page.changes = wording.revision_changes(current, after)
    if list(live.values()) == after.assignments and not faults:
        faults.append("Nothing to publish: the Assignments here are what is live.")
    page.faults = faults
    return page
