"""The form of a rule set, and the pages of its versions, with the way back to each."""

from collections.abc import Iterable
from typing import Any

import msgspec
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.forms.formsets import all_valid
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies import checking, compiler, manifests, publishing
from policies.admin.base import confirm_going_back, link, may_publish, named
from policies.admin.editing import EditingAdmin, open_change_of
from policies.admin.failure_fields import FAILURE_FIELDSET
from policies.admin.faults import FieldFault, faults_of_forms
from policies.admin.frame import action, display, once
from policies.admin.help import HELP
from policies.admin.panels import draft_links, rule_counts
from policies.admin.rule_forms import INLINES, RuleSetForm
from policies.admin.rule_sets import sentences, version_url
from policies.admin.rule_tests import Results, may_check, results_of, say_results
from policies.engine import ruleset as engine
from policies.engine.errors import RuleSetError
from policies.models import Change, Rule, RuleSet, RuleSetVersion
from policies.models.ruleset import validate_name
from policies.publishing import Kind

# The prefix of a key of a rule set's form.
_EDIT = "edit:"
# The request attribute with the faults of a whole rule set whose parts, each checked for itself, have none.
_TOGETHER = "berth.together"
_SHOWN = ("of_rule_set", "state", "description", "note", "rules_in_words", "who", "digest", "document")


@admin.register(RuleSetVersion)
class RuleSetVersionAdmin(EditingAdmin):
    """The read-only pages of versions; and the form of a rule set, with the key `edit:NAME`."""

    kind = Kind.RULE_SET
    form = RuleSetForm
    inlines = tuple(INLINES)
    list_display = ("version", "state_label", "edited_by", "published_at", "publisher")
    list_filter = ("state",)
    search_fields = ("rule_set__name", "note", "author")
    actions_detail = ("go_back", "to_rule_set")
    warn_unsaved_form = True
    change_form_outer_before_template = "policies/rule_set_form.html"
    change_form_before_template = "policies/open_edits.html"
    change_form_template = "policies/rule_set_fields.html"
    empty_title = "No version yet"
    empty_text = "A rule set gets its first version when a Change with it is published."

    class Media:
        js = ("berth/rules.js", "berth/codemirror.js", "berth/editor.js", "berth/faults.js")
        css = {"all": ("berth/editor.css",)}

    def get_urls(self) -> list[URLPattern]:
        """Add the URL that checks a form while somebody types."""
        check = self.admin_site.admin_view(self.check_form)
        return [path("<path:object_id>/check/", check, name="policies_rulesetversion_check"), *super().get_urls()]

    def changeform_view(self, request: HttpRequest, *arguments: Any, **named: Any) -> Any:
        """Show the form. If rules have a fault only together, it is validated again: it shows the fault, and keeps what was typed."""
        try:
            return super().changeform_view(request, *arguments, **named)
        except RuleSetError as error:
            request.META[_TOGETHER] = [str(each) for each in error.faults]
            return super().changeform_view(request, *arguments, **named)

    def get_form(self, request: HttpRequest, obj: Any = None, change: Any = False, **kwargs: Any) -> Any:  # noqa: FBT002 - Django's
        """Return the form, with the faults of its rule set as a whole."""
        form = super().get_form(request, obj, change, **kwargs)
        form.together = request.META.get(_TOGETHER, ())
        return form

    def check_form(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return the faults of the unsaved form as JSON. Nothing is saved."""
        key = self.key_of(object_id)
        if request.method != "POST" or not key.startswith(_EDIT):
            raise Http404
        row = self.get_object(request, key)
        if not may_check(request):
            return JsonResponse({"faults": None}, status=429)
        form = self.get_form(request, row, change=True)(request.POST, instance=row)
        form.is_valid()
        formsets, _ = self._create_formsets(request, row, change=True)  # type: ignore[attr-defined] # Django's, which has no stub
        all_valid(formsets)
        return JsonResponse({"faults": [msgspec.to_builtins(fault) for fault in faults_of_forms(form, formsets)]})

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add what is shown above the form: its faults, the test results, links to other pages, who else is editing."""
        row = context.get("original")
        if row is not None and row.pk is None:
            context["editor"] = self._above_the_form(request, context, row)
            context |= self._open_edits(request, row.rule_set.name)
        return super().render_change_form(request, context, *args, **kwargs)

    def _above_the_form(self, request: HttpRequest, context: dict[str, Any], row: Any) -> dict[str, Any]:
        form = context["adminform"].form
        formsets = [each.formset for each in context["inline_admin_formsets"]]
        name, change = row.rule_set.name, open_change_of(request)
        faults: list[FieldFault] = faults_of_forms(form, formsets) if form.is_bound else []
        return {
            "faults": faults,
            "results": _results(row),
            "links": draft_links(name, change),
            "text_url": _with_change(reverse("rule_set_text", args=[name]), change),
            "help": HELP,
            "check_url": reverse("admin:policies_rulesetversion_check", args=[f"{_EDIT}{name}"]),
        }

    def name_of(self, row: RuleSetVersion) -> str:
        """Return the rule set's name."""
        return row.rule_set.name

    def key_of(self, text: str) -> str:
        """Return the key of a version; or that of a rule set's form, which contains the name."""
        key = unquote(text)
        if not key.startswith(_EDIT):
            return super().key_of(text)
        try:
            validate_name(key.removeprefix(_EDIT))
        except ValidationError as error:
            raise Http404 from error
        return key

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a version, or a rule set to edit: its content in the Change, else live, else of the newest version."""
        if not object_id.startswith(_EDIT):
            return super().get_object(request, object_id, from_field)
        if not self.has_change_permission(request):
            raise PermissionDenied
        name = object_id.removeprefix(_EDIT)
        rule_set = RuleSet.objects.filter(name=name).first() or RuleSet(
            name=name, description=request.GET.get("description", "")
        )
        content = content_of(rule_set, open_change_of(request)) if rule_set.pk else _copied(request, rule_set)
        row = RuleSetVersion(rule_set=rule_set, number=0, **compiler.version_fields(content))
        row.loaded_rules = compiler.rules_of(content, version=row)  # type: ignore[attr-defined] # for the formsets
        if request.method == "GET":
            _note_chips(row.loaded_rules, content)  # type: ignore[attr-defined] # as above
        row.loaded_content = content  # type: ignore[attr-defined] # for the heading of the tests
        return row

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> Any:
        """Return the buttons above a version; the form of a rule set has none, and nobody goes back to the live version."""
        if str(unquote(str(object_id))).startswith(_EDIT):
            return []
        offered = super().get_actions_detail(request, object_id)  # type: ignore[misc] # Unfold's
        is_live = RuleSetVersion.objects.filter(state=RuleSetVersion.State.PUBLISHED, pk=object_id).exists()
        return [each for each in offered if not (is_live and each.action_name.endswith("go_back"))]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RuleSetVersion]:
        """Select the rule set in the same query."""
        return super().get_queryset(request).select_related("rule_set")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse: a version is made by publishing."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: versions are history."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow the form of a rule set, which isn't a version yet."""
        frozen = isinstance(obj, RuleSetVersion) and obj.pk is not None
        return not frozen and super().has_change_permission(request)

    def has_publish_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish; False for a version, which is published already."""
        is_form = object_id is None or str(unquote(str(object_id))).startswith(_EDIT)
        return is_form and super().has_publish_permission(request, object_id)

    def has_go_back_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish, and the version was live once. Who comes too late is told on the page."""
        states = [RuleSetVersion.State.SUPERSEDED, RuleSetVersion.State.PUBLISHED]
        is_possible = object_id is None or RuleSetVersion.objects.filter(state__in=states, pk=object_id).exists()
        return may_publish(request) and is_possible

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        """Return the rules as rows if they can be edited."""
        return self.inlines if obj and self.has_change_permission(request, obj) else ()

    def get_fieldsets(self, request: HttpRequest, obj: RuleSetVersion | None = None) -> Any:
        """Return the fields of the form, or the read-only ones."""
        if not self.has_change_permission(request, obj):
            return ((None, {"fields": _SHOWN}),)
        return (
            (None, {"fields": ("description",)}),
            ("In an outage", {"fields": FAILURE_FIELDSET, "classes": ("collapse",)}),
            ("Params", {"fields": ("params",), "classes": ("collapse",)}),
            (_results(obj).heading, {"fields": ("tests",), "classes": ("collapse",)}),
            ("Save into", {"fields": (("goes_into", "new_title"), "loaded_digest")}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: RuleSetVersion | None = None) -> Any:
        """Return the read-only fields."""
        return () if self.has_change_permission(request, obj) else _SHOWN

    def save_model(self, request: HttpRequest, obj: RuleSetVersion, form: Any, change: Any) -> None:
        """Do nothing: `save_related`, which has the rules, saves."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """Put the whole rule set into its Change, as one document."""
        document = compiler.document_of_rules(
            name=form.instance.rule_set.name,
            description=form.cleaned_data["description"],
            params=form.cleaned_data["params"],
            tests=form.cleaned_data["tests"],
            rules=[rule for formset in formsets for rule in formset.rules()],
            failures=form.failures(),
        )
        rule_set = checking.read_rule_set(document)
        self.put(request, form, rule_set)
        say_results(request, results_of(rule_set))

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Leave it to the Change's events: the formsets save no rows of their own."""
        return ""

    @action(description="Rule set", icon="arrow_back")
    def to_rule_set(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the rule set."""
        rule_set = get_object_or_404(RuleSet, versions=object_id)
        return HttpResponseRedirect(reverse("admin:policies_ruleset_change", args=[rule_set.pk]))

    @action(description="Go back to this", permissions=["go_back"], url_path="go-back", icon="undo")
    def go_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what making this version live again would do, and do it."""
        version = get_object_or_404(RuleSetVersion.objects.select_related("rule_set"), pk=object_id)
        return confirm_going_back(self, request, version, version_url(version))

    @display(description="Version", ordering="rule_set__name")
    def version(self, row: RuleSetVersion) -> str:
        """Return the title."""
        return str(row)

    @display(description="State", label={"published": "success"}, ordering="state")
    def state_label(self, row: RuleSetVersion) -> str:
        """Return the state."""
        return str(row.get_state_display())

    @display(description="Rule set")
    def of_rule_set(self, row: RuleSetVersion) -> SafeString:
        """Link to the rule set."""
        return link(reverse("admin:policies_ruleset_change", args=[row.rule_set_id]), row.rule_set)

    @display(description="Rules")
    @once
    def rules_in_words(self, row: RuleSetVersion) -> SafeString | str:
        """Return the rules as sentences."""
        content = publishing.version_content(row)
        spec = content.spec
        return sentences(content) if spec.filters or spec.scores or spec.victims else "No rule yet."

    @display(description="Who and when")
    def who(self, row: RuleSetVersion) -> SafeString:
        """Return author and publisher."""
        people = (named(row, row.author), named(row, row.published_by))
        at = f"{row.published_at:%Y-%m-%d %H:%M:%S}"
        return format_html("edited by {}; first published by {} at {} UTC", *people, at)

    @display(description="Edited by", ordering="author")
    def edited_by(self, row: RuleSetVersion) -> SafeString | str:
        """Return the author."""
        return named(row, row.author)

    @display(description="Published by", ordering="published_by")
    def publisher(self, row: RuleSetVersion) -> SafeString | str:
        """Return who published it first."""
        return named(row, row.published_by)

    @display(description="Document")
    @once
    def document(self, row: RuleSetVersion) -> SafeString:
        """Return the document as YAML, as `export` writes it."""
        return copyable(manifests.to_yaml(publishing.version_document(row)))


def _note_chips(rules: Iterable[Rule], content: engine.RuleSet) -> None:
    """Attach to each rule of a form what it reads, what it costs, and its counts of refused nodes."""
    counts = rule_counts(content.name)
    facts = {(kind, key): (reads, cost) for kind, key, reads, cost in checking.facts_of(content)}
    for rule in rules:
        key = rule.name or rule.builtin
        reads, cost = facts.get((rule.kind, key), ([], ""))
        said = [f"reads {', '.join(reads)}" if reads else "", cost, *counts.get(key, [])]
        rule.chips = [each for each in said if each]  # type: ignore[attr-defined] # for the forms


def _with_change(url: str, change: Change | None) -> str:
    return f"{url}?change={change.pk}" if change else url


def content_of(rule_set: RuleSet, change: Change | None) -> engine.RuleSet:
    """Return the content with which an edit begins: that in the Change, else the live one, else the newest version."""
    key = (Kind.RULE_SET, rule_set.name)
    content = publishing.found_in(change, key).value or publishing.found_in(None, key).value
    if isinstance(content, engine.RuleSet):
        return content
    newest = rule_set.versions.first() if rule_set.pk else None
    return (
        publishing.version_content(newest)
        if newest
        else engine.RuleSet(name=rule_set.name, description=rule_set.description)
    )


def _copied(request: HttpRequest, rule_set: RuleSet) -> engine.RuleSet:
    """Return a new rule set's first content: a copy of what the address names, else that in a Change, else none."""
    original = RuleSet.objects.filter(name=request.GET.get("from", "")).first()
    if original is None:
        return content_of(rule_set, open_change_of(request))
    return msgspec.structs.replace(
        content_of(original, None), name=rule_set.name, version=0, description=rule_set.description
    )


def _results(row: Any) -> Results:
    """Return the test results of the form's first content; the tests run once for each page."""
    found: Results | None = getattr(row, "test_results", None)
    if found is None:
        content: engine.RuleSet | None = getattr(row, "loaded_content", None)
        found = row.test_results = results_of(content) if content else Results(0, 0)
    return found


def copyable(text: str) -> SafeString:
    """Return a text block with a copy button."""
    button = '<button type="button" class="berth-copy" data-berth-copy>Copy</button>'
    return format_html('<div class="berth-block">{}<pre class="berth-code">{}</pre></div>', SafeString(button), text)
