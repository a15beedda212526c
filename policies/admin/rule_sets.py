"""Rule sets: the list, and one rule set with what is published, its versions and its Assignments."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from policies import publishing, wording
from policies.admin.base import Confirmation, confirm, decisions_url, link, person
from policies.admin.frame import ActionVariant, ChangeList, ModelAdmin, ModelForm, action, display
from policies.engine import ruleset as engine
from policies.models import RuleSet, RuleSetVersion

_VARIANTS = {"published": "success", "draft": "warning", "rejected": "danger", "superseded": "default"}


class _LiveChangeList(ChangeList):
    """A list whose rows know what is live."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        live = {rule_set.name: rule_set for rule_set in publishing.current_revision().rule_sets}
        for row in self.result_list:
            row.live = live.get(row.name)


class RuleSetForm(ModelForm):
    """What a new rule set needs."""

    class Meta:
        model = RuleSet
        fields = ["name", "description"]


def _live(row: RuleSet) -> engine.RuleSet | None:
    """Return what the list's query attached: the rule set as it is live."""
    return getattr(row, "live", None)


def sentences(rule_set: engine.RuleSet | None) -> SafeString:
    """Return the rules of a rule set, and what it chose for outages, as a list of sentences."""
    if rule_set is None:
        return SafeString("")
    spec = rule_set.spec
    rules: list[wording.AnyRule] = [*spec.filters, *spec.scores, *spec.victims]
    lines = [*map(wording.rule_sentence, rules), *wording.failures_sentences(spec.failures)]
    items = format_html_join("", "<li>{}</li>", ((line,) for line in lines))
    return format_html('<ul class="berth-sentences">{}</ul>', items)


def version_url(version: RuleSetVersion) -> str:
    """Return the page of a version."""
    return reverse("admin:policies_rulesetversion_change", args=[version.pk])


@admin.register(RuleSet)
class RuleSetAdmin(ModelAdmin):
    """The pages of rule sets."""

    form = RuleSetForm
    list_display = ("name", "what_for", "published_version", "draft", "rules", "last_change")
    search_fields = ("name", "description", "versions__rules__expression", "versions__rules__builtin")
    search_help_text = "Name, description, expression or built-in"
    actions_detail = ("edit_draft", "withdraw")
    empty_title = "No rule set yet"
    empty_text = (
        "A rule set says which nodes a Pod may use and which are best. Add one, write its rules as a draft, publish it; "
        "then an Assignment says which Pods get it."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[RuleSet]:
        """Bring the versions along."""
        return super().get_queryset(request).prefetch_related("versions")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list whose rows know what is live."""
        return _LiveChangeList

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse changes of the row: what can change is a draft."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: history names it. It can be withdrawn."""
        return False

    def has_edit_draft_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may edit drafts."""
        return request.user.has_perm("policies.change_rulesetversion")

    def has_withdraw_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish and the rule set is live."""
        live = RuleSetVersion.objects.filter(rule_set=object_id, state=RuleSetVersion.State.PUBLISHED)
        return may_publish(request) and live.exists()

    def get_fieldsets(self, request: HttpRequest, obj: RuleSet | None = None) -> Any:
        """Ask name and description for a new one; show what is live for one that is there."""
        if obj is None:
            return ((None, {"fields": ("name", "description")}),)
        return (
            (None, {"fields": ("what_for", "live_rules")}),
            ("Versions", {"fields": ("version_table",)}),
            ("Assignments", {"fields": ("assignment_table",)}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: RuleSet | None = None) -> Any:
        """Show, don't edit, what is there."""
        return () if obj is None else ("what_for", "live_rules", "version_table", "assignment_table")

    def save_model(self, request: HttpRequest, obj: RuleSet, form: Any, change: Any) -> None:
        """Make the rule set with its first draft."""
        version = publishing.create_rule_set(name=obj.name, description=obj.description, by=person(request))
        obj.pk = version.rule_set_id

    def response_add(self, request: HttpRequest, obj: RuleSet, post_url_continue: Any = None) -> HttpResponse:
        """Land on the draft's page."""
        messages.success(request, f"{obj} was made. Add its rules to the draft, then publish it.")
        return HttpResponseRedirect(version_url(obj.versions.get()))

    @action(description="Edit draft", permissions=["edit_draft"], variant=ActionVariant.PRIMARY, icon="edit")
    def edit_draft(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the draft; where there is none, ask whether to make one, and make it when that is posted."""
        rule_set = get_object_or_404(RuleSet, pk=object_id)
        draft = rule_set.versions.filter(state=RuleSetVersion.State.DRAFT).first()
        if draft is None and request.method != "POST":
            context = {
                **self.admin_site.each_context(request),
                "title": f"New draft of {rule_set}",
                "rule_set": rule_set,
                "back": reverse("admin:policies_ruleset_change", args=[rule_set.pk]),
                "opts": self.opts,
            }
            return TemplateResponse(request, "policies/new_draft.html", context)
        if draft is None:
            try:
                draft = publishing.new_draft(rule_set=rule_set, by=person(request))
            except publishing.PublishingError as error:
                messages.error(request, " ".join(error.messages))
                return HttpResponseRedirect(reverse("admin:policies_ruleset_change", args=[rule_set.pk]))
            messages.info(request, f"{draft} is a new draft, a copy of what is published.")
        return HttpResponseRedirect(version_url(draft))

    @action(description="Withdraw", permissions=["withdraw"], variant=ActionVariant.DANGER, icon="block")
    def withdraw(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take the rule set out of what is live."""
        rule_set = get_object_or_404(RuleSet, pk=object_id)
        return confirm(
            self,
            request,
            lambda: _withdrawing_page(rule_set),
            lambda reason, digest: publishing.withdraw(
                rule_set=rule_set, by=person(request), reason=reason, expected_digest=digest
            ),
            propose=lambda reason, digest: publishing.propose_withdrawal(
                rule_set=rule_set, by=person(request), reason=reason, expected_digest=digest
            ),
        )

    @display(description="What it is for")
    def what_for(self, row: RuleSet) -> str:
        """Return the author's words."""
        return row.description or "no description"

    @display(description="Published", label={"not published": "warning"})
    def published_version(self, row: RuleSet) -> str:
        """Return the live version."""
        live = _live(row)
        return f"version {live.version}" if live else "not published"

    @display(description="Draft")
    def draft(self, row: RuleSet) -> Any:
        """Link to the draft."""
        draft = next((version for version in row.versions.all() if version.is_draft), None)
        return link(version_url(draft), f"version {draft.number}") if draft else "none"

    @display(description="Published rules")
    def rules(self, row: RuleSet) -> SafeString | str:
        """Return the live rules as sentences."""
        return sentences(_live(row)) if _live(row) else "none yet"

    @display(description="Last change", ordering="updated_at")
    def last_change(self, row: RuleSet) -> Any:
        """Return who changed it last, and when."""
        newest = next(iter(row.versions.all()), None)
        by = newest.published_by or newest.author if newest else ""
        return format_html("{}<br>{}", f"{row.updated_at:%Y-%m-%d %H:%M} UTC", by)

    @display(description="Published rules")
    def live_rules(self, row: RuleSet) -> SafeString | str:
        """Return what is live."""
        found = next((each for each in publishing.current_revision().rule_sets if each.name == row.name), None)
        if found is None:
            return "Nothing is published. Edit the draft and publish it."
        decisions = link(decisions_url(rule_set=row.name), "its Decisions")
        return format_html("Version {}, {}{}", found.version, decisions, sentences(found))

    @display(description="")
    def version_table(self, row: RuleSet) -> SafeString:
        """List all versions."""
        lines = (
            (
                link(version_url(version), f"version {version.number}"),
                version.get_state_display(),
                version.author,
                f"{version.saved_at:%Y-%m-%d %H:%M} UTC",
                version.note,
            )
            for version in row.versions.all()
        )
        return table(("Version", "State", "Author", "Saved", "Note"), lines)

    @display(description="")
    def assignment_table(self, row: RuleSet) -> SafeString | str:
        """List the Assignments that give this rule set."""
        lines = [
            (link(reverse("admin:policies_assignment_change", args=[each.pk]), each.name), each.order, each.mode)
            for each in row.assignments.all()
        ]
        if lines:
            return table(("Assignment", "Order", "Mode"), lines)
        add = f"{reverse('admin:policies_assignment_add')}?rule_set={row.pk}"
        return format_html("No Pods get it yet. {}", link(add, "Add an Assignment"))


def _withdrawing_page(rule_set: RuleSet) -> Confirmation:
    current = publishing.current_revision()
    naming = ", ".join(rule_set.assignments.values_list("name", flat=True))
    return Confirmation(
        title=f"Withdraw {rule_set}",
        effect=f"Makes Revision {current.number + 1} without {rule_set}. Versions stay.",
        faults=[f"Assignments name it: {naming}. Give them another rule set first."] if naming else [],
        button="Withdraw",
        back=reverse("admin:policies_ruleset_change", args=[rule_set.pk]),
        digest=publishing.digest_of_shown(current.number),
        danger=True,
        is_reviewed=bool(publishing.needs_of([rule_set.name])),
    )


def table(headings: tuple[str, ...], rows: Any) -> SafeString:
    """Return a plain table. Cells are escaped unless they are safe."""
    head = format_html_join("", "<th>{}</th>", ((heading,) for heading in headings))
    body = format_html_join(
        "", "<tr>{}</tr>", ((format_html_join("", "<td>{}</td>", ((cell,) for cell in row)),) for row in rows)
    )
    return format_html('<table class="berth-table"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>', head, body)


def may_publish(request: HttpRequest) -> bool:
    """Return whether this person may publish, or send to review where that is required."""
    return request.user.has_perm("policies.publish")
