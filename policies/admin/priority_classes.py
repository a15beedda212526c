"""The pages of PriorityClasses: the ladder by value, and one class with its state in the cluster."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from policies import checking, compiler, manifests, publishing
from policies.admin.base import Confirmation, confirm, link, may_publish, named, person, revision_url
from policies.admin.editing import EditedChangeList, RowAdmin, RowForm
from policies.admin.fields import WholeField
from policies.admin.frame import ChangeList, ModelAdmin, action, display, once
from policies.admin.ladder import ladder, signed
from policies.admin.rule_sets import table
from policies.admin.versions import copyable
from policies.engine import ruleset as engine
from policies.engine.documents import read_priority_class
from policies.engine.errors import Fault, RuleSetError
from policies.models import ClusterPriorityClass, PriorityClass, PriorityClassLook, PriorityClassVersion
from policies.publishing import Kind, Value
from policies.sentences import priority_class_sentence, priority_class_sentences

_FIELDS = {
    "metadata.name": "name",
    "metadata.description": "description",
    "spec.value": "value",
    "spec.globalDefault": "global_default",
    "spec.preemptionPolicy": "preemption_policy",
    "spec.adopt": "adopt",
    "spec.deletionPolicy": "deletion_policy",
}
_LIST = "admin:policies_priorityclass_changelist"
_SHOWN = ("live_state", "in_the_cluster", "version_table", "document")
_NOT_LIVE = "not live"
_LABELS = {
    "✓ applied": "success",
    "… pending": "info",
    "✗ refused": "danger",
    "✗ conflict": "danger",
    "! foreign": "warning",
    "! drifted": "warning",
    _NOT_LIVE: "default",
}


class PriorityClassForm(RowForm):
    """A PriorityClass, checked by the engine, and against other rows and the cluster."""

    kind = Kind.PRIORITY_CLASS
    places = _FIELDS

    class Meta:
        model = PriorityClass
        fields = list(_FIELDS.values())
        field_classes = {"description": WholeField}

    def check_row(self) -> Sequence[Fault]:
        """Decode it with the engine, then compare."""
        value = checking.read_priority_class(compiler.priority_class_document(self.instance))
        live, chosen = publishing.current_revision(), self.chosen()
        beside = publishing.with_edits(live, publishing.edits_of(chosen)) if chosen else live
        return publishing.priority_class_faults(value, beside.priority_classes)

    def _get_validation_exclusions(self) -> set[str]:
        # The rows hold the live state; `check_row` checks for one default class in the Change.
        return {*super()._get_validation_exclusions(), "global_default"}  # type: ignore[misc] # ModelForm's hook


class _PriorityClassChangeList(EditedChangeList):
    """A list whose rows carry the live class, and its state in the cluster."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        live = publishing.live_priority_classes()
        found = ClusterPriorityClass.objects.in_bulk([row.name for row in self.result_list])
        for row in self.result_list:
            row.cluster = _state(live.get(row.name), found.get(row.name))


def _state(
    live: engine.PriorityClass | None, found: ClusterPriorityClass | None
) -> publishing.PriorityClassState | None:
    return publishing.priority_class_state(live, found) if live else None


@admin.register(PriorityClass)
class PriorityClassAdmin(RowAdmin):
    """The pages of PriorityClasses."""

    kind = Kind.PRIORITY_CLASS
    form = PriorityClassForm
    list_display = (
        "value_shown",
        "name_link",
        "what_for",
        "cluster_label",
        "last_edit",
    )
    search_fields = ("name", "description")
    actions_detail = ("put_back",)
    fieldsets = (
        (None, {"fields": ("name", "description", ("value", "preemption_policy"), "global_default")}),
        ("Existing and deleted classes in the cluster", {"fields": ("adopt", "deletion_policy")}),
    )
    list_before_template = "policies/priority_class_ladder.html"
    empty_title = "No PriorityClass of Berth's yet"
    empty_text = (
        "A PriorityClass sets the priority of Pods: their place in the queue, and which Pods they may preempt. Add one "
        "and publish it; Berth then creates it in the cluster. Classes that already exist are listed above."
    )

    def get_fieldsets(self, request: HttpRequest, obj: PriorityClass | None = None) -> Any:
        """Return the form, or sentences for users who may not change it, and below it the present state of the class."""
        if obj is None:
            return super().get_fieldsets(request, obj)
        shown = ("Existing classes", {"fields": _SHOWN})
        if not self.has_change_permission(request, obj):
            return [(None, {"fields": ("name", "description", "in_words")}), shown]
        return [*super().get_fieldsets(request, obj), shown]

    def get_readonly_fields(self, request: HttpRequest, obj: PriorityClass | None = None) -> Any:
        """Make the name read-only: Pods and the Revision refer to the class by it."""
        return ("name", "in_words", *_SHOWN) if obj else ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list whose rows carry the live class."""
        return _PriorityClassChangeList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Return open edits, all classes by value with who uses them, and whether the cluster can be read."""
        extra = {"look": PriorityClassLook.objects.first(), "may_adopt": may_publish(request), **ladder()}
        return super().changelist_view(request, {**(extra_context or {}), **extra})

    def has_put_back_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish, and others changed the class in the cluster. Who confirms too late is told so."""
        names = PriorityClass.objects.filter(pk=object_id).values("name")
        drifted = ClusterPriorityClass.objects.filter(name__in=names, state=ClusterPriorityClass.State.DRIFTED)
        return may_publish(request) and (request.method == "POST" or drifted.exists())

    def columns_of(self, value: Any) -> dict[str, Any]:
        """Return the columns of a PriorityClass' row."""
        return compiler.priority_class_fields(value)

    def value_of(self, row: Any) -> Value:
        """Return a PriorityClass."""
        return read_priority_class(compiler.priority_class_document(row))

    @action(description="Put back", permissions=["put_back"], url_path="put-back", icon="settings_backup_restore")
    def put_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what others changed in the cluster, and undo it there."""
        row = get_object_or_404(PriorityClass, pk=object_id)
        back = reverse("admin:policies_priorityclass_change", args=[row.pk])

        def look() -> Confirmation:
            # Before what is shown: the digest may be older, never newer.
            digest = publishing.digest_of_putting_back(row.name)
            found = get_object_or_404(ClusterPriorityClass, pk=row.name)
            return Confirmation(
                title=f"Put {row} back",
                effect=f"Overwrites the cluster's {row} with the version published here. No Revision is made; Pods keep their priority.",
                button="Put back",
                back=back,
                changes=[found.message] if found.message else [],
                faults=publishing.faults_of_putting_back(found),
                digest=digest,
                danger=True,
            )

        def act(reason: str, digest: str) -> None:
            publishing.put_back(name=row.name, by=person(request), reason=reason, expected_digest=digest)
            ModelAdmin.log_change(self, request, row, f"Put back in the cluster: {reason}")

        return confirm(self, request, look, act, done=f"{row} will be put back within a few seconds.")

    @display(description="Value", ordering="value")
    def value_shown(self, row: PriorityClass) -> str:
        """Return the value with thousands separators."""
        return f"{row.value:,}"

    @display(description="What it does")
    def what_for(self, row: PriorityClass) -> SafeString | str:
        """Return the description, and a sentence about what the class does."""
        try:
            sentence = priority_class_sentence(read_priority_class(compiler.priority_class_document(row)))
        except RuleSetError as error:
            sentence = f"faulty: {error}"
        return format_html("{}<br>{}", row.description, sentence) if row.description else sentence

    @display(description="What it does")
    def in_words(self, row: PriorityClass) -> SafeString | str:
        """Return all of its fields, in sentences."""
        try:
            said = priority_class_sentences(read_priority_class(compiler.priority_class_document(row)))
        except RuleSetError as error:
            return f"faulty: {error}"
        items = format_html_join("", "<li>{}</li>", ((sentence,) for sentence in said))
        return format_html('<ul class="berth-sentences">{}</ul>', items)

    @display(description="In the cluster", label=_LABELS)
    def cluster_label(self, row: PriorityClass) -> str:
        """Return the state of the live class in the cluster."""
        state = getattr(row, "cluster", None)
        return signed(state.state) if state else _NOT_LIVE

    @display(description="Live")
    @once
    def live_state(self, row: PriorityClass) -> SafeString | str:
        """Return the live version, and its state in the cluster."""
        live = publishing.live_priority_classes().get(row.name)
        state = _state(live, ClusterPriorityClass.objects.filter(pk=row.name).first())
        if live is None or state is None:
            return "Not live. Publish it, and Berth creates it in the cluster."
        words = priority_class_sentence(live)
        return format_html("Version {}: {}<br>{} {}", live.version, words, signed(state.state), state.message)

    @display(description="In the cluster")
    @once
    def in_the_cluster(self, row: PriorityClass) -> SafeString | str:
        """Return the class as last read from the API server."""
        found = ClusterPriorityClass.objects.filter(pk=row.name).first()
        look = PriorityClassLook.objects.first()
        fault = f"! The cluster can't be reached now: {look.error}" if look and look.error else ""
        page = link(
            reverse("cluster_priority_class", args=[quote(row.name)]),
            "Compare with the published version, and see which Pods use it",
        )
        if found is None or not found.present:
            return format_html("{}{} {}", fault, "" if fault else "There is no class with this name.", page)
        facts = [
            ("value", f"{found.value:,}"),
            ("preemptionPolicy", found.preemption_policy),
            ("globalDefault", "yes" if found.global_default else "no"),
            ("description", found.description or "none"),
            ("managed by", _manager(found)),
            ("looked at", f"{found.looked_at:%Y-%m-%d %H:%M:%S} UTC"),
        ]
        return format_html("{}{}{}", fault, table(("", ""), facts), page)

    @display(description="Versions")
    @once
    def version_table(self, row: PriorityClass) -> SafeString | str:
        """List the versions published under this name."""
        versions = PriorityClassVersion.objects.filter(name=row.name)
        cells = [
            (
                each.number,
                each.state,
                version_sentence(each),
                link(revision_url(each.revision), f"Revision {each.revision}"),
                format_html("{} at {} UTC", named(row, each.published_by), f"{each.published_at:%Y-%m-%d %H:%M}"),
            )
            for each in versions
        ]
        return table(("Version", "State", "What it does", "Since", "Published by"), cells) if cells else "none yet"

    @display(description="Document")
    @once
    def document(self, row: PriorityClass) -> SafeString:
        """Return the document as YAML, as `export` writes it."""
        return copyable(manifests.to_yaml(compiler.priority_class_document(row)))


def version_sentence(version: PriorityClassVersion) -> str:
    """Return what a version does, or why it can't be read."""
    try:
        return priority_class_sentence(publishing.priority_class_content(version))
    except publishing.PublishingError as error:
        return " ".join(error.messages)


def _manager(found: ClusterPriorityClass) -> str:
    if not found.managed:
        return "others"
    return "Berth, which created it" if found.made_by_berth else "Berth, which took it over"
