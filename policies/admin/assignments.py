"""Assignments: the ordered list, one Assignment's form, and publishing what differs from what is live."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from policies import checking, compiler, publishing, wording
from policies.admin.base import Confirmation, confirm, link, person, publish_action
from policies.admin.fields import NamesField, SelectorField, YAMLField
from policies.admin.frame import display
from policies.admin.together import CheckedForm, TogetherAdmin
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.engine.validation import read_assignment
from policies.models import Assignment, RuleSet, RuleSetVersion

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


class AssignmentForm(CheckedForm):
    """An Assignment, checked as the engine does."""

    places = _FIELDS
    document = staticmethod(compiler.assignment_document)
    scheduler_names = NamesField(label="Scheduler names", help_text="The Pod's schedulerName, by commas. Empty: any.")
    namespaces = NamesField(label="Namespaces", help_text="By commas. Empty: any.")
    namespace_selector = SelectorField(
        label="Namespace labels", help_text="As in kubectl: team=web, tier in (a, b), !legacy. Empty: any."
    )
    pod_selector = SelectorField(
        label="Pod labels", help_text="As in kubectl: app=api, tier notin (batch), gpu. Empty: any."
    )
    priority_class_names = NamesField(label="PriorityClasses", help_text="By commas. Empty: any.")
    owner_kinds = NamesField(
        label="Kinds of owner",
        help_text="What controls the Pod, by commas: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, none. Empty: any.",
    )
    params = YAMLField(
        empty={}, label="Params", help_text="In place of the rule set's own of the same names, as YAML: team: shop."
    )

    class Meta:
        model = Assignment
        fields = list(_FIELDS.values())

    def _get_validation_exclusions(self) -> set[str]:
        """Leave the constraint on percents to the engine, which says at the field what is wrong."""
        return super()._get_validation_exclusions() | {"percent"}  # type: ignore[misc,no-any-return]  # Django's hook

    def check_row(self) -> Sequence[Fault]:
        """Read it as the engine does, and compare its params with those of its rule set."""
        read = checking.read_assignment(compiler.assignment_document(self.instance))
        rule_set = _newest(self.instance.rule_set) if read.params else None
        return checking.params_faults(read, rule_set) if rule_set else ()


def _newest(row: RuleSet) -> engine.RuleSet | None:
    """Return a rule set as it will be when an Assignment for it can go live; None where it can't yet."""
    version = (
        row.versions.filter(state=RuleSetVersion.State.PUBLISHED).first() or row.versions.order_by("number").last()
    )
    try:
        return checking.read_rule_set(compiler.rule_set_document(version)) if version else None
    except RuleSetError:
        return None


@admin.register(Assignment)
class AssignmentAdmin(TogetherAdmin):
    """The pages of Assignments."""

    form = AssignmentForm
    list_display: tuple[str, ...] = ("order", "name_link", "matches", "gets", "mode_label", "live_label", "last_edit")
    list_filter = ("mode", "rule_set")
    search_fields = ("name", "description", "rule_set__name")
    list_before_template = "policies/unpublished_assignments.html"
    fieldsets = (
        (None, {"fields": ("name", "description", ("order", "mode", "percent"), "rule_set", "params")}),
        (
            "Which Pods: all that is given must hold",
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
        "An Assignment says which Pods get which rule set. kube-scheduler places Pods that none matches as if "
        "Berth were not there. Publish a rule set first, then add an Assignment for it."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Assignment]:
        """Bring the rule set along."""
        return super().get_queryset(request).select_related("rule_set")

    def unpublished(self) -> Mapping[str, str]:
        """Return the names of Assignments that differ from what is live."""
        return publishing.unpublished_assignments()

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Leave out the pop-ups beside the rule set: a rule set has pages of its own."""
        form = super().get_form(request, obj, change, **kwargs)
        if "rule_set" in form.base_fields:
            for act in ("add", "change", "delete", "view"):
                setattr(form.base_fields["rule_set"].widget, f"can_{act}_related", False)
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Assignment | None = None) -> Any:
        """Keep the name: Decisions and the Revision know the Assignment by it."""
        return ("name",) if obj else ()

    def save_model(self, request: HttpRequest, obj: Assignment, form: Any, change: Any) -> None:
        """Save by the one place where state changes."""
        row = Assignment.objects.get(pk=obj.pk) if change else None
        value = read_assignment(compiler.assignment_document(obj))
        saved, _changed = publishing.save_assignment(assignment=value, row=row, by=person(request))
        obj.pk = saved.pk

    @publish_action("Publish Assignments")
    def publish_all(self, request: HttpRequest) -> HttpResponse:
        """Show what publishing would do, and do it."""
        return confirm(
            self,
            request,
            _publishing_page,
            lambda reason, digest: publishing.publish_assignments(
                by=person(request), reason=reason, expected_digest=digest
            ),
            propose=lambda reason, digest: publishing.propose_assignments(
                by=person(request), reason=reason, expected_digest=digest
            ),
        )

    @display(description="Takes")
    def matches(self, row: Assignment) -> str:
        """Return which Pods it takes, in words."""
        try:
            return wording.match_sentence(read_assignment(compiler.assignment_document(row)).match)
        except RuleSetError as error:
            return f"faulty: {error}"

    @display(description="Gives", ordering="rule_set__name")
    def gets(self, row: Assignment) -> Any:
        """Link to the rule set."""
        return link(reverse("admin:policies_ruleset_change", args=[row.rule_set_id]), row.rule_set)

    @display(description="Mode", ordering="mode", label={"enforce": "info", "shadow": "warning", "canary": "warning"})
    def mode_label(self, row: Assignment) -> tuple[str, str]:
        """Return the mode, with the percent of a canary."""
        return row.mode, f"canary {row.percent} %" if row.percent is not None else row.mode


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
        pauses=current.pauses,
        exemptions=current.exemptions,
    )
    faults += [str(each) for each in publishing.params_faults(wanted.values(), current.rule_sets)]
    page.changes = wording.revision_changes(current, after)
    page.digest = publishing.digest_of_shown(current.assignments, list(wanted.values()))
    page.is_reviewed = publishing.needs_review(publishing.edits_between(current, after))
    if list(live.values()) == after.assignments and not faults:
        faults.append("Nothing to publish: the Assignments here are what is live.")
    page.faults = faults
    return page
