"""A version of a rule set: the draft's form, the frozen version's page, and publishing."""

from typing import Any

import msgspec
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies import checking, compiler, manifests, publishing, wording
from policies.admin.base import Confirmation, confirm, link, person, publish_action
from policies.admin.failure_fields import FAILURE_FIELDSET
from policies.admin.frame import ModelAdmin, action, display
from policies.admin.rule_forms import INLINES, DraftForm
from policies.admin.rule_sets import may_publish, sentences, version_url
from policies.engine import ruleset as engine
from policies.models import RuleSet, RuleSetVersion

_SHOWN = ("of_rule_set", "state", "description", "note", "rules_in_words", "who", "digest", "document")


@admin.register(RuleSetVersion)
class RuleSetVersionAdmin(ModelAdmin):
    """The pages of versions. A draft is a form; everything else, and a draft for who may not edit, is shown."""

    form = DraftForm
    inlines = tuple(INLINES)
    list_display = ("version", "state_label", "author", "saved_at", "published_at", "published_by")
    list_filter = ("state", "rule_set")
    search_fields = ("rule_set__name", "note", "author")
    actions_detail = ("publish_draft", "go_back", "to_rule_set")
    actions_submit_line = ("save_and_publish",)
    warn_unsaved_form = True
    empty_title = "No version yet"
    empty_text = "Versions come with rule sets: add a rule set first."

    class Media:
        js = ("berth/rules.js",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[RuleSetVersion]:
        """Bring the rule set along."""
        return super().get_queryset(request).select_related("rule_set")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse: a new draft comes from its rule set's page."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: versions are history."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow only drafts to be changed."""
        frozen = isinstance(obj, RuleSetVersion) and not obj.is_draft
        return not frozen and super().has_change_permission(request)

    def has_publish_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish, and it is a draft."""
        drafts = RuleSetVersion.objects.filter(state=RuleSetVersion.State.DRAFT)
        return may_publish(request) and (object_id is None or drafts.filter(pk=object_id).exists())

    def has_go_back_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish, and it was live once."""
        former = RuleSetVersion.objects.filter(state=RuleSetVersion.State.SUPERSEDED)
        return may_publish(request) and (object_id is None or former.filter(pk=object_id).exists())

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Leave out the button that would do the same as Save, which stays on the draft."""
        return super().render_change_form(request, {**context, "show_save_and_continue": False}, *args, **kwargs)

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        """Return the rules as rows only where they can be edited."""
        return self.inlines if obj and self.has_change_permission(request, obj) else ()

    def get_fieldsets(self, request: HttpRequest, obj: RuleSetVersion | None = None) -> Any:
        """Return the draft's form, or what there is to read."""
        if not self.has_change_permission(request, obj):
            return ((None, {"fields": _SHOWN}),)
        return (
            (None, {"fields": ("description", "note", "loaded_digest")}),
            ("In an outage", {"fields": FAILURE_FIELDSET, "classes": ("collapse",)}),
            ("Params and tests", {"fields": ("params", "tests"), "classes": ("collapse",)}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: RuleSetVersion | None = None) -> Any:
        """Return the fields to read."""
        return () if self.has_change_permission(request, obj) else _SHOWN

    def save_model(self, request: HttpRequest, obj: RuleSetVersion, form: Any, change: Any) -> None:
        """Leave it to `save_related`, which has the rules."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """Save the whole draft, as one document."""
        document = compiler.document_of_rules(
            name=form.instance.rule_set.name,
            description=form.cleaned_data["description"],
            params=form.cleaned_data["params"],
            tests=form.cleaned_data["tests"],
            rules=[rule for formset in formsets for rule in formset.rules()],
            failures=form.failures(),
        )
        publishing.save_draft(
            version=form.instance,
            rule_set=checking.read_rule_set(document),
            by=person(request),
            note=form.cleaned_data["note"],
            expected_digest=form.cleaned_data["loaded_digest"],
        )

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Name the change in a word: the formsets save no rows of their own."""
        return "Saved the draft."

    def response_change(self, request: HttpRequest, obj: RuleSetVersion) -> HttpResponse:
        """Stay on the draft, or go on to publishing."""
        if "policies_rulesetversion_save_and_publish" in request.POST:
            return HttpResponseRedirect(reverse("admin:policies_rulesetversion_publish_draft", args=[obj.pk]))
        messages.success(request, f"{obj} is saved. Nothing is live until it is published.")
        return HttpResponseRedirect(version_url(obj))

    @action(description="Save and publish…", permissions=["publish"])
    def save_and_publish(self, request: HttpRequest, obj: RuleSetVersion) -> None:
        """Do nothing more than save: `response_change` goes on to the publishing page."""

    @action(description="Rule set", icon="arrow_back")
    def to_rule_set(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the rule set."""
        rule_set = get_object_or_404(RuleSet, versions=object_id)
        return HttpResponseRedirect(reverse("admin:policies_ruleset_change", args=[rule_set.pk]))

    @action(description="Go back to this", permissions=["go_back"], url_path="go-back", icon="undo")
    def go_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what making this version live again would do, and do it."""
        version = get_object_or_404(RuleSetVersion.objects.select_related("rule_set"), pk=object_id)
        return confirm(
            self,
            request,
            lambda: _going_back_page(version),
            lambda reason, digest: publishing.go_back(
                version=version, by=person(request), reason=reason, expected_digest=digest
            ),
            propose=lambda reason, digest: publishing.propose_going_back(
                version=version, by=person(request), reason=reason, expected_digest=digest
            ),
        )

    @publish_action("Publish")
    def publish_draft(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what publishing would do, and do it."""
        version = get_object_or_404(RuleSetVersion.objects.select_related("rule_set"), pk=object_id)
        return confirm(
            self,
            request,
            lambda: _publishing_page(_fresh(version)),
            lambda reason, digest: publishing.publish(
                version=version, by=person(request), reason=reason, expected_digest=digest
            ),
            propose=lambda reason, digest: publishing.propose_draft(
                version=version, by=person(request), reason=reason, expected_digest=digest
            ),
        )

    @display(description="Version", ordering="rule_set__name")
    def version(self, row: RuleSetVersion) -> str:
        """Name it."""
        return str(row)

    @display(
        description="State", label={"draft": "warning", "published": "success", "rejected": "danger"}, ordering="state"
    )
    def state_label(self, row: RuleSetVersion) -> str:
        """Return the state."""
        return str(row.get_state_display())

    @display(description="Rule set")
    def of_rule_set(self, row: RuleSetVersion) -> SafeString:
        """Link to the rule set."""
        return link(reverse("admin:policies_ruleset_change", args=[row.rule_set_id]), row.rule_set)

    @display(description="Rules")
    def rules_in_words(self, row: RuleSetVersion) -> SafeString | str:
        """Return the rules as sentences."""
        content = _content_of(row)
        spec = content.spec
        return sentences(content) if spec.filters or spec.scores or spec.victims else "No rule yet."

    @display(description="Who and when")
    def who(self, row: RuleSetVersion) -> str:
        """Return author and publisher."""
        text = f"saved by {row.author} at {row.saved_at:%Y-%m-%d %H:%M:%S} UTC"
        if row.published_at:
            text += f"; first published by {row.published_by} at {row.published_at:%Y-%m-%d %H:%M:%S} UTC"
        return text

    @display(description="Document")
    def document(self, row: RuleSetVersion) -> SafeString:
        """Return the document as YAML, as `export` writes it."""
        return copyable(manifests.to_yaml(compiler.rule_set_document(row)))


def copyable(text: str) -> SafeString:
    """Return a text block with a copy button."""
    button = '<button type="button" class="berth-copy" data-berth-copy>Copy</button>'
    return format_html('<div class="berth-block">{}<pre class="berth-code">{}</pre></div>', SafeString(button), text)


def _content_of(version: RuleSetVersion) -> engine.RuleSet:
    return checking.read_rule_set(compiler.rule_set_document(version))


def _fresh(version: RuleSetVersion) -> RuleSetVersion:
    return RuleSetVersion.objects.select_related("rule_set").get(pk=version.pk)


def _publishing_page(version: RuleSetVersion) -> Confirmation:
    current = publishing.current_revision()
    live = next((each for each in current.rule_sets if each.name == version.rule_set.name), None)
    page = Confirmation(
        title=f"Publish {version}",
        effect=f"Makes Revision {current.number + 1}. Every process serves it within about a second.",
        button="Publish",
        back=version_url(version),
        is_reviewed=bool(publishing.needs_of([version.rule_set.name])),
    )
    try:
        content = publishing.check_version(version)
    except publishing.PublishingError as error:
        page.faults = error.messages
        return page
    others = [each for each in current.rule_sets if each is not live]
    after = msgspec.structs.replace(current, rule_sets=[*others, content])
    page.changes = wording.look_alikes(current, after) + wording.rule_set_changes(live, content)
    page.digest = compiler.digest_of(content)
    tests = len(content.spec.tests)
    page.proofs = [
        "The document is valid: every rule is complete and every expression compiles.",
        f"Tests of the document: {tests} of {tests} pass." if tests else "The document has no tests.",
        _taken_by(current, version.rule_set.name),
    ]
    return page


def _going_back_page(version: RuleSetVersion) -> Confirmation:
    current = publishing.current_revision()
    live = next((each for each in current.rule_sets if each.name == version.rule_set.name), None)
    page = Confirmation(
        title=f"Go back to {version}",
        effect=f"Makes Revision {current.number + 1} with {version}, as it was. Nothing else changes; the draft stays.",
        button="Go back",
        back=version_url(version),
        digest=publishing.digest_of_shown(current.number),
        danger=True,
        is_reviewed=bool(publishing.needs_of([version.rule_set.name])),
    )
    try:
        page.changes = wording.rule_set_changes(live, publishing.check_version(version))
    except publishing.PublishingError as error:
        page.faults = error.messages
    return page


def _taken_by(current: engine.Revision, name: str) -> str:
    taking = [assignment for assignment in current.assignments if assignment.rule_set == name]
    if not taking:
        return "No live Assignment names this rule set: no Pod gets it until one does."
    return "Live Assignments: " + "; ".join(f"{each.name}: {wording.assignment_sentence(each)}" for each in taking)
