"""Rule sets: the list, and one rule set with what is published, its versions and its Assignments."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db.models import OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, NullIf
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from policies import publishing
from policies.admin.base import (
    Confirmation,
    change_url,
    confirm,
    decisions_url,
    edit_url,
    link,
    may_publish,
    named,
    person,
)
from policies.admin.editing import EditedChangeList, EditingAdmin
from policies.admin.fields import WholeField
from policies.admin.frame import ActionVariant, ChangeList, ModelForm, action, display, once, refuse_many_words
from policies.admin.panels import draft_links, list_links, rule_counts
from policies.changes_in_words import part_changes
from policies.engine import ruleset as engine
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.pauses import EVERYTHING, RULE_SET, in_force
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.models import Rule, RuleSet, RuleSetVersion
from policies.models.ruleset import NAME_MAX_LENGTH
from policies.publishing import Kind
from policies.sentences import AnyRule, ending_sentence, failures_sentences, rule_sentence
from policies.wording import counted

# How many characters of a description a line of the list holds, which shows fewer.
_MOST_OF_DESCRIPTION = 500
_MINE = "mine"


class LiveChangeList(EditedChangeList):
    """A list whose rows carry their live content, the Assignments that use them, their owners, and whether they are paused."""

    def get_results(self, request: HttpRequest) -> None:
        """Read this for all rows of a page at once."""
        super().get_results(request)
        revision = publishing.current_revision()
        live = {rule_set.name: rule_set for rule_set in revision.rule_sets}
        given = Counter(each.rule_set for each in revision.assignments)
        groups = {setting.rule_set: setting.group for setting in publishing.review_settings() if setting.approvals}
        paused = {each.target for each in in_force(revision.pauses, timezone.now())}
        for row in self.result_list:
            row.live, row.given, row.group = live.get(row.name), given[row.name], groups.get(row.name, "")
            row.is_paused = not paused.isdisjoint({EVERYTHING, f"{RULE_SET}/{row.name}"})


class ArchivedFilter(admin.SimpleListFilter):
    """Hides archived rule sets, unless they are chosen."""

    title = "which"
    parameter_name = "which"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices besides the default, rule sets in use."""
        return [("archived", "archived"), ("all", "all")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Rename the first choice, which isn't all rule sets."""
        first, *more = super().choices(changelist)
        yield {**first, "display": "live or in a Change"}
        yield from more

    def queryset(self, request: HttpRequest, queryset: QuerySet[RuleSet]) -> QuerySet[RuleSet]:
        """Return the rule sets of the choice."""
        used = Q(pk__in=publishing.rule_sets_in_use().values("pk"))
        match self.value():
            case "archived":
                return queryset.exclude(used)
            case "all":
                return queryset
            case _:
                return queryset.filter(used)


class EditedFilter(admin.SimpleListFilter):
    """Filters the list by live rule sets, or by those that an open Change edits."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [("live", "live"), ("draft", "in an open Change"), ("new", "only in an open Change")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[RuleSet]) -> QuerySet[RuleSet]:
        """Return the rule sets of the choice."""
        drafts = Q(name__in=publishing.open_edits(Kind.RULE_SET).order_by().values("name"))
        live = Q(pk__in=_published().values("rule_set"))
        match self.value():
            case "live":
                return queryset.filter(live)
            case "draft":
                return queryset.filter(drafts)
            case "new":
                return queryset.filter(drafts).exclude(live)
            case _:
                return queryset


class BuiltinFilter(admin.SimpleListFilter):
    """Filters the list by rule sets whose live rules use a built-in."""

    title = "built-in used"
    parameter_name = "builtin"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return all built-ins by name."""
        return [(name, name) for name in sorted({*BUILTIN_FILTERS, *BUILTIN_SCORES})]

    def queryset(self, request: HttpRequest, queryset: QuerySet[RuleSet]) -> QuerySet[RuleSet]:
        """Return the rule sets that use it."""
        if not self.value():
            return queryset
        using = Rule.objects.filter(version__in=_published(), builtin=self.value())
        return queryset.filter(pk__in=using.order_by().values("version__rule_set"))


class OwnerFilter(admin.SimpleListFilter):
    """Filters the list by rule sets that a group has to approve, or that the user wrote first."""

    title = "owner"
    parameter_name = "owner"

    # Groups: a link to one that owns nothing any more shows an empty list.
    choices_are_data = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the user, and the groups."""
        groups = {each.group for each in publishing.review_settings() if each.rule_set and each.group}
        return [(_MINE, "me"), *((f"group:{name}", name) for name in sorted(groups))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[RuleSet]) -> QuerySet[RuleSet]:
        """Return the rule sets with this owner."""
        chosen = self.value()
        if not chosen:
            return queryset
        owned = [each for each in publishing.review_settings() if each.approvals and each.group and each.rule_set]
        if chosen == _MINE:
            of_groups = [each.rule_set for each in owned]
            mine = Q(("first_by", person(request).get_username()))  # annotated by the list's query
            return queryset.filter(mine).exclude(name__in=of_groups)
        return queryset.filter(name__in=[each.rule_set for each in owned if f"group:{each.group}" == chosen])


def _published() -> QuerySet[RuleSetVersion]:
    return RuleSetVersion.objects.filter(state=RuleSetVersion.State.PUBLISHED).order_by()


class NewRuleSetForm(ModelForm):
    """The form of a new rule set."""

    class Meta:
        model = RuleSet
        fields = ["name", "description"]
        field_classes = {"description": WholeField}


def _live(row: RuleSet) -> engine.RuleSet | None:
    """Return the live rule set, which the list's query attached."""
    return getattr(row, "live", None)


def sentences(rule_set: engine.RuleSet | None, counts: Mapping[str, Sequence[str]] | None = None) -> SafeString:
    """Return the rules of a rule set, and its choices for outages, as a list of sentences.

    `counts` are texts by rule name, shown after the rule's sentence.
    """
    if rule_set is None:
        return SafeString("")
    spec = rule_set.spec
    rules: list[AnyRule] = [*spec.filters, *spec.scores, *spec.victims]
    said = counts or {}
    lines = ["; ".join([rule_sentence(rule), *said.get(rule.key, ())]) for rule in rules]
    lines += failures_sentences(spec.failures)
    items = format_html_join("", "<li>{}</li>", ((line,) for line in lines))
    return format_html('<ul class="berth-sentences">{}</ul>', items)


def version_url(version: RuleSetVersion) -> str:
    """Return the URL of a version."""
    return reverse("admin:policies_rulesetversion_change", args=[version.pk])


def _not_live(*, has_versions: bool, edits: bool) -> str:
    """Return a sentence about a rule set that isn't live: what can be done with it."""
    back = ", or go back to one of its versions" * has_versions
    return f"It isn't live. {'Edit it' if edits else 'An Operator can edit it'}{back}."


@admin.register(RuleSet)
class RuleSetAdmin(EditingAdmin):
    """The pages of rule sets."""

    kind = Kind.RULE_SET
    form = NewRuleSetForm
    list_display: tuple[str, ...] = (
        "name",
        "about",
        "state",
        "owner",
        "last_change",
    )
    list_filter = (ArchivedFilter, EditedFilter, OwnerFilter, BuiltinFilter)
    actions_submit_line = ()
    search_fields = ("name", "description")
    search_help_text = "Name, description, or an expression or built-in of the live version"
    actions_detail = ("edit", "duplicate", "bring_back", "archive")
    change_form_outer_before_template = "policies/rule_set_ways.html"
    empty_title = "No rule set yet"
    empty_text = (
        "A rule set says which nodes a Pod may use and which are best. Add one, write its rules and publish it; "
        "then assign it to Pods with an Assignment."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[RuleSet]:
        """Annotate who published last, without reading all versions."""
        newest = RuleSetVersion.objects.filter(rule_set=OuterRef("pk")).order_by("-number")
        by = newest.annotate(by=Coalesce(NullIf("published_by", Value("")), "author")).values("by")[:1]
        first_by = newest.order_by("number").values("author")[:1]
        found: QuerySet[RuleSet] = super().get_queryset(request)
        return found.annotate(last_by=Subquery(by), first_by=Subquery(first_by))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[RuleSet], search_term: str
    ) -> tuple[QuerySet[RuleSet], bool]:
        """Search rule sets; for a form's menu, by name those that can be chosen."""
        if request.resolver_match and request.resolver_match.url_name == "autocomplete":
            refuse_many_words(search_term)
            terms = Q(*(("name__icontains", term) for term in search_term.split()))
            return queryset.filter(terms, pk__in=publishing.rule_sets_in_use().values("pk")), False
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if not search_term.strip():
            return found, may_repeat
        # Search live versions only: a rule set has many versions, each with all of its rules.
        of_rules = Rule.objects.filter(version__state=RuleSetVersion.State.PUBLISHED)
        for term in search_term.split():
            of_rules = of_rules.filter(Q(expression__icontains=term) | Q(builtin__icontains=term))
        either = Q(pk__in=found.values("pk")) | Q(pk__in=of_rules.values("version__rule_set"))
        return queryset.filter(either), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list whose rows carry the live content."""
        return LiveChangeList

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse changes of the row: only drafts can be edited."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: history refers to it. It can be archived."""
        return False

    def has_edit_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may edit rule sets."""
        return request.user.has_perm("policies.change_rulesetversion")

    def has_archive_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish."""
        return may_publish(request)

    def has_bring_back_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish, and the rule set has a version."""
        return may_publish(request) and RuleSetVersion.objects.filter(rule_set=object_id).exists()

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> Any:
        """Return the buttons that do something now. The page of one that no longer does says so, as a colleague may have been faster."""
        idle = "bring_back" if _is_live(object_id) else "archive"
        offered = super().get_actions_detail(request, object_id)  # type: ignore[misc] # Unfold's
        return [each for each in offered if not each.action_name.endswith(idle)]

    def get_fieldsets(self, request: HttpRequest, obj: RuleSet | None = None) -> Any:
        """Return name and description for a new rule set; the live content for an existing one."""
        if obj is None:
            return ((None, {"fields": ("name", "description")}),)
        return (
            (None, {"fields": ("what_for", "live_rules")}),
            ("Versions", {"fields": ("version_table",)}),
            ("Assignments", {"fields": ("assignment_table",)}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: RuleSet | None = None) -> Any:
        """Make all fields of an existing rule set read-only."""
        return () if obj is None else ("what_for", "live_rules", "version_table", "assignment_table")

    def save_model(self, request: HttpRequest, obj: RuleSet, form: Any, change: Any) -> None:
        """Save nothing yet: the first edit creates the rule set."""

    def response_add(self, request: HttpRequest, obj: RuleSet, post_url_continue: Any = None) -> HttpResponse:
        """Go on to its rules."""
        messages.info(request, f"Add the rules of {obj}, then save it.")
        given = {name: request.GET.get(name, "") for name in ("from", "change")} | {"description": obj.description}
        query = urlencode({name: value for name, value in given.items() if value})
        return HttpResponseRedirect(f"{edit_url(self.kind, obj.name)}?{query}")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Begin a copy with another name and the same description."""
        original = RuleSet.objects.filter(name=request.GET.get("from", "")).first()
        if original is None:
            return dict(super().get_changeform_initial_data(request))
        return {"name": f"{original.name}-copy"[:NAME_MAX_LENGTH], "description": original.description}

    @action(description="Duplicate", permissions=["edit"], icon="content_copy")
    def duplicate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to a new rule set that begins with the rules of this one."""
        rule_set = get_object_or_404(RuleSet, pk=object_id)
        return HttpResponseRedirect(f"{reverse('admin:policies_ruleset_add')}?{urlencode({'from': rule_set.name})}")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Return the list, with links for import and export."""
        return super().changelist_view(request, {**(extra_context or {}), "ways": list_links(request)})

    @action(description="Edit", permissions=["edit"], variant=ActionVariant.PRIMARY, icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to its form, in the open Change that edits it if there is one."""
        rule_set = get_object_or_404(RuleSet, pk=object_id)
        changes = [each.change for each in publishing.open_edits(self.kind, [rule_set.name])]
        return HttpResponseRedirect(edit_url(self.kind, rule_set.name, changes[0] if len(changes) == 1 else None))

    @action(description="Bring back", permissions=["bring_back"], url_path="bring-back", icon="unarchive")
    def bring_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the page that makes its newest version live again."""
        newest = get_object_or_404(RuleSet, pk=object_id).versions.first()
        return HttpResponseRedirect(reverse("admin:policies_rulesetversion_go_back", args=[newest.pk if newest else 0]))

    @action(description="Archive", permissions=["archive"], variant=ActionVariant.DANGER, icon="archive")
    def archive(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Remove the rule set from what is live, and hide it in the list."""
        rule_set = get_object_or_404(RuleSet, pk=object_id)
        return confirm(
            self,
            request,
            lambda: _archiving_page(rule_set),
            lambda reason, digest: publishing.archive(
                rule_set=rule_set, by=person(request), reason=reason, expected_digest=digest
            ),
            propose=lambda reason, digest: publishing.propose_archiving(
                rule_set=rule_set, by=person(request), reason=reason, expected_digest=digest
            ),
        )

    @display(description="Purpose")
    def what_for(self, row: RuleSet) -> str:
        """Return the description."""
        return row.description or "no description"

    @display(description="State", label={"not live": "warning", "live": "success", "paused": "danger"})
    def state(self, row: RuleSet) -> tuple[str, str]:
        """Return whether it is live, which version, and whether a Pause keeps it from deciding."""
        live = _live(row)
        if live is None:
            return "not live", "not live"
        is_paused = getattr(row, "is_paused", False)
        return ("paused", f"paused, version {live.version}") if is_paused else ("live", f"live, version {live.version}")

    @display(description="Purpose")
    def about(self, row: RuleSet) -> SafeString:
        """Return the description, cut to a line, and how many rules of each kind are live."""
        words = Truncator(self.what_for(row)).chars(_MOST_OF_DESCRIPTION)
        line = '<div><span class="berth-one-line" title="{}">{}</span><span class="berth-help">{}</span></div>'
        return format_html(line, words, words, self._number_of_rules(row))

    def _number_of_rules(self, row: RuleSet) -> str:
        live = _live(row)
        if live is None:
            return ""
        spec = live.spec
        counts = ((len(spec.filters), "filter"), (len(spec.scores), "score"), (len(spec.victims), "victims rule"))
        return ", ".join(counted(number, word) for number, word in counts if number)

    @display(description="Assignments")
    def number_of_assignments(self, row: RuleSet) -> Any:
        """Return how many live Assignments use it, with a link to them."""
        number = getattr(row, "given", 0)
        url = f"{reverse('admin:policies_assignment_changelist')}?{urlencode({'rule_set__name': row.name})}"
        return link(url, number) if number else "none"

    @display(description="Owner")
    def owner(self, row: RuleSet) -> SafeString | str:
        """Return its owner: the group that has to approve it, else its first author."""
        group, first_by = getattr(row, "group", ""), getattr(row, "first_by", "")
        return group or (named(row, first_by) if first_by else "nobody yet")

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add links from the published rule set: its drafts, its text, its tests, a preview, its Decisions."""
        row = context.get("original")
        if row is not None:
            context["ways_of_set"] = self._ways(request, row.name)
        # For a new name one button is left: all three would go on to the rules, and none would save.
        one = {"show_save_and_continue": False, "show_save_and_add_another": False}
        return super().render_change_form(request, {**context, **one}, *args, **kwargs)

    def _ways(self, request: HttpRequest, name: str) -> list[tuple[str, str]]:
        changes = [each.change for each in publishing.open_edits(self.kind, [name])]
        only = changes[0] if len(changes) == 1 else None
        ways = [(f"Draft in {change}", edit_url(self.kind, name, change)) for change in changes]
        decisions = [("Decisions", decisions_url(rule_set=name))]
        if not self.has_edit_permission(request):
            return [(f"Draft in {change}", change_url(change.pk)) for change in changes] + decisions
        form, text = edit_url(self.kind, name, only), reverse("rule_set_text", args=[name])
        query = f"?change={only.pk}" if only else ""
        ways = ways or [("Draft", form)]
        return [
            *ways,
            ("Text", f"{text}{query}"),
            ("Tests", f"{form}#id_tests"),
            *draft_links(name, only),
            *decisions,
        ]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> RuleSet | None:
        """Return a rule set, with whether the user may assign it."""
        row: Any = super().get_object(request, object_id, from_field)
        if row is not None:
            row.is_assigned_by_reader = request.user.has_perm("policies.add_assignment")
            row.is_edited_by_reader = request.user.has_perm("policies.change_rulesetversion")
        return cast("RuleSet | None", row)

    @display(description="Last change", ordering="updated_at")
    def last_change(self, row: RuleSet) -> Any:
        """Return who changed it last, and when; below, the open Changes that edit it."""
        return self.change_line(row, getattr(row, "last_by", None) or "")

    @display(description="Published rules")
    @once
    def live_rules(self, row: RuleSet) -> SafeString | str:
        """Return the live rules."""
        found = next((each for each in publishing.current_revision().rule_sets if each.name == row.name), None)
        if found is None:
            return _not_live(has_versions=row.versions.exists(), edits=getattr(row, "is_edited_by_reader", False))
        decisions = link(decisions_url(rule_set=row.name), "its Decisions")
        return format_html("Version {}, {}{}", found.version, decisions, sentences(found, rule_counts(found.name)))

    @display(description="")
    @once
    def version_table(self, row: RuleSet) -> SafeString | str:
        """List all versions."""
        lines = [
            (
                link(version_url(version), f"version {version.number}"),
                version.get_state_display(),
                named(row, version.author),
                f"{version.published_at:%Y-%m-%d %H:%M} UTC" if version.published_at else "",
                version.note,
            )
            for version in row.versions.all()
        ]
        if not lines:
            return "None yet: publishing a Change with this rule set makes the first."
        return table(("Version", "State", "Author", "Published first", "Why"), lines)

    @display(description="")
    @once
    def assignment_table(self, row: RuleSet) -> SafeString | str:
        """List the Assignments that use this rule set."""
        lines = [
            (link(reverse("admin:policies_assignment_change", args=[each.pk]), each.name), each.order, each.mode)
            for each in row.assignments.all()
        ]
        if lines:
            return table(("Assignment", "Order", "Mode"), lines)
        if not getattr(row, "is_assigned_by_reader", False):
            return "No Pods get it yet, because no Assignment names it. An Operator can add one."
        add = f"{reverse('admin:policies_assignment_add')}?rule_set={row.pk}"
        return format_html("No Pods get it yet. {}", link(add, "Add an Assignment"))


def _is_live(pk: Any) -> bool:
    return RuleSetVersion.objects.filter(rule_set=pk, state=RuleSetVersion.State.PUBLISHED).exists()


def _archiving_page(rule_set: RuleSet) -> Confirmation:
    current = publishing.current_revision()
    naming = ", ".join(each.name for each in current.assignments if each.rule_set == rule_set.name)
    held = next((each for each in current.rule_sets if each.name == rule_set.name), None)
    edits = [publishing.Edit(Kind.RULE_SET, rule_set.name, None)] if held else []
    ended = [ending_sentence(each) for each in publishing.ended_with(current, edits)]
    faults = [f"These Assignments use it: {naming}. Give them another rule set first."] if naming else []
    return Confirmation(
        title=f"Archive {rule_set}",
        effect=f"Makes Revision {current.number + 1} without {rule_set}. Its versions are kept, and you can bring it back.",
        changes=[*part_changes(held, None), *ended],
        edits=edits,
        faults=faults if held else [f"Nothing to do: {rule_set} isn't live."],
        button="Archive",
        back=reverse("admin:policies_ruleset_change", args=[rule_set.pk]),
        digest=publishing.digest_of_shown(current.number),
        danger=True,
        is_reviewed=bool(publishing.needs_of([rule_set.name])),
        is_gated=publishing.needs_gate(edits),
    )


def table(headings: tuple[str, ...], rows: Any) -> SafeString:
    """Return a plain table, whose rows are cards on a phone. Cells are escaped unless they are SafeStrings."""
    head = format_html_join("", "<th>{}</th>", ((heading,) for heading in headings))
    cell = '<td data-label="{}">{}</td>'
    lines = [format_html_join("", cell, zip(headings, row, strict=True)) for row in rows]
    body = format_html_join("", "<tr>{}</tr>", ((line,) for line in lines))
    return format_html(
        '<table class="berth-table berth-stacks"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>', head, body
    )
