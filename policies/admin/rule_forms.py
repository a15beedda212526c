"""The form of a rule set: its fields, and its rules as rows. Each fault of the engine is shown at its row and field."""

import re
from collections.abc import Sequence
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from policies import checking, compiler
from policies.admin.editing import EditForm
from policies.admin.failure_fields import FAILURE_PATHS, FailureFields
from policies.admin.fields import QuickSelect, WholeField, YAMLField
from policies.admin.frame import InlineFormSet, ModelForm, StackedInline
from policies.engine.errors import Fault, RuleSetError
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.validation import MAX_REASON_LENGTH, MAX_RULES
from policies.models import Rule, RuleSetVersion
from policies.publishing import Key, Kind
from policies.sentences import builtin_help

_LAST = 1_000_000
# The most rows of one kind that a page may send, including rows to delete.
_MOST_ROWS = 3 * MAX_RULES
_PLACE = re.compile(r"spec\.(?:filters|scores|victims)\[(\d+)\](?:\.(\w+))?(.*)", re.DOTALL)
_FIELDS = {"onError": "on_error", "preemptionHelps": "preemption_helps", "bounds": "bounds_low"}
_TEXT_FIELDS = {"metadata.description": "description", "spec.params": "params", "spec.tests": "tests"}


def faults_of(document: dict[str, Any]) -> list[Fault]:
    """Return the engine's faults of a RuleSet document."""
    try:
        checking.read_rule_set(document)
    except RuleSetError as error:
        return error.faults
    return []


def describe(fault: Fault, source: str = "") -> str | SafeString:
    """Return a fault's message; for one inside an expression, with the source line and a caret below the place."""
    if not fault.line:
        return fault.message
    lines = source.splitlines() or [""]
    text = lines[min(fault.line, len(lines)) - 1]
    caret = " " * max(fault.column - 1, 0) + "^"
    return format_html(
        'line {}, column {}: {}<pre class="berth-caret">{}\n{}</pre>',
        *(fault.line, fault.column, fault.message, text, caret),
    )


class RuleSetForm(FailureFields, EditForm):
    """A rule set's own fields."""

    # The faults that the rule set has as a whole.
    together: Sequence[str] = ()

    params = YAMLField(empty={}, label="Params", help_text="Constants that expressions read as params.NAME, as YAML.")
    tests = YAMLField(
        empty=[],
        rows=12,
        label="Tests",
        help_text="Run before each publish. YAML, like spec.tests of a document: name, pod, nodes, expect.",
    )

    class Meta:
        model = RuleSetVersion
        fields = ["description", "params", "tests"]
        field_classes = {"description": WholeField}

    def key(self) -> Key:
        """Return kind and name."""
        return Kind.RULE_SET, self.instance.rule_set.name

    def clean(self) -> dict[str, Any]:
        """Check params and tests with the engine."""
        cleaned = super().clean()
        document = compiler.document_of_rules(
            name=self.instance.rule_set.name,
            description=cleaned.get("description", ""),
            params=cleaned.get("params") or {},
            tests=cleaned.get("tests") or [],
            rules=[],
            failures=self.failures(),
        )
        places = _TEXT_FIELDS | FAILURE_PATHS
        for fault in faults_of(document):
            member = fault.path.split("[")[0]
            field = next((name for path, name in places.items() if member.startswith(path)), None)
            self.add_error(field, f"{fault.path.removeprefix('spec.')}: {fault.message}")
        for said in self.together:
            self.add_error(None, said)
        return cleaned


class RuleForm(ModelForm):
    """One rule as a row. Faults without a field of their own are shown at `chosen_by`."""

    kind: Rule.Kind
    builtins: dict[str, Any]
    chosen_by = "builtin"
    # A declared field takes no help text from Meta.
    expression_help: str
    position = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    builtin = forms.ChoiceField(required=False, label="Built-in", widget=QuickSelect)
    arguments = YAMLField(
        empty={}, rows=2, label="Arguments", help_text="Arguments of the built-in, as YAML; most built-ins need none."
    )
    expression = WholeField(
        required=False,
        label="Expression",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "class": "berth-code", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "builtin" in self.fields:
            choices = [("", "none: use the expression below"), *((name, self._label(name)) for name in self.builtins)]
            cast("forms.ChoiceField", self.fields["builtin"]).choices = choices
        if "expression" in self.fields:
            self.fields["expression"].help_text = self.expression_help
        self._show_chips()

    def _show_chips(self) -> None:
        """Put what the rule reads, costs and refused before the help of the field that it is chosen by."""
        chips = getattr(self.instance, "chips", ())
        field = self.fields.get("builtin" if self.instance.builtin else "expression")
        if not chips or field is None:
            return
        said = format_html_join(" ", '<span class="berth-chip">{}</span>', ((each,) for each in chips))
        field.help_text = format_html('<span class="berth-rule-chips">{}</span> {}', said, field.help_text or "")

    @staticmethod
    def _label(name: str) -> str:
        help_text = builtin_help(name)
        return f"{name}: {help_text}" if help_text else name

    def as_rule(self) -> Rule:
        """Return the row as typed, with defaults for faulty fields."""
        typed = {name: value for name, value in self.cleaned_data.items() if name in (self._meta.fields or ())}
        typed = {name: value for name, value in typed.items() if value is not None}
        return Rule(**{"arguments": {}, **typed, "kind": self.kind})


class FilterForm(RuleForm):
    """A filter."""

    kind = Rule.Kind.FILTER
    builtins = BUILTIN_FILTERS
    expression_help = "CEL that is true for nodes where the Pod may run. Variables: pod, requests, namespaceObject, node, usage, params and now."

    class Meta:
        model = Rule
        fields = [
            *("name", "builtin", "expression", "arguments", "reason"),
            *("on_error", "preemption_helps", "mode", "position"),
        ]
        help_texts = {
            "name": "Decisions and tests refer to the rule by this name. Required for an expression.",
            "reason": (
                f"Constant reason for a refusal: one line, at most {MAX_REASON_LENGTH} characters, no percent sign: "
                "kube-scheduler groups nodes by it and shows it in the Pod's events."
            ),
            "on_error": "What a failed evaluation means for the node.",
            "preemption_helps": "Could removing Pods from the node change the answer?",
            "mode": "Shadow: evaluated and recorded, but refuses nothing.",
        }


class ScoreForm(RuleForm):
    """A score."""

    kind = Rule.Kind.SCORE
    builtins = BUILTIN_SCORES
    expression_help = "CEL that returns a number, higher for a better node. Variables: pod, requests, namespaceObject, node, usage, params and now."

    class Meta:
        model = Rule
        fields = [
            *("name", "builtin", "expression", "arguments"),
            *("weight", "bounds_low", "bounds_high", "mode", "position"),
        ]
        labels = {"bounds_low": "Lower bound", "bounds_high": "Upper bound"}
        help_texts = {
            "name": "Decisions and tests refer to the rule by this name. Required for an expression.",
            "weight": "The weight of this score relative to the others.",
            "bounds_low": "The expression's value that gives 0. Without bounds the worst node gets 0.",
            "bounds_high": "The value that gives 10. Without bounds the best node gets 10.",
            "mode": "Shadow: evaluated and recorded, but doesn't count.",
        }

    def clean(self) -> dict[str, Any]:
        """Require both bounds or neither."""
        cleaned = super().clean() or self.cleaned_data
        low, high = cleaned.get("bounds_low"), cleaned.get("bounds_high")
        if (low is None) != (high is None):
            self.add_error("bounds_low" if low is None else "bounds_high", "Set both bounds or none.")
        return cleaned


class VictimForm(RuleForm):
    """A victims rule: always an expression."""

    kind = Rule.Kind.VICTIM
    builtins = {}
    chosen_by = "expression"
    expression_help = (
        "CEL that is true for a Pod that preemption may remove. Variables: victim (that Pod, on its node), pod (the "
        "Pod that needs room), node, params and now: victim.metadata.?labels.env.orValue('') != 'prod'"
    )
    builtin = None  # type: ignore[assignment]  # Django's way to leave a parent's field out
    arguments = None  # type: ignore[assignment]

    class Meta:
        model = Rule
        fields = ["name", "expression", "reason", "on_error", "mode", "position"]
        help_texts = {
            "name": "Decisions refer to the rule by this name.",
            "reason": f"Constant reason for the protection: one line, at most {MAX_REASON_LENGTH} characters, no percent sign.",
            "on_error": "What a failed evaluation means. Reject: the Pod is protected. Pass: it isn't.",
            "mode": "Shadow: evaluated and recorded, but protects nothing.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "on_error" in self.fields:
            cast("forms.ChoiceField", self.fields["on_error"]).choices = [
                ("reject", "reject: protect the Pod"),
                ("pass", "pass: continue as if the rule didn't exist"),
            ]


class RuleFormSet(InlineFormSet):
    """The rows of one kind. Rows are identified by position, not by key: saving makes new rows."""

    @classmethod
    def get_default_prefix(cls) -> str:
        """Name the fields as a document does: `filters-0-expression`."""
        return f"{cls.form.kind}s"

    def add_fields(self, form: forms.Form, index: int | None) -> None:
        """Accept any text as a row's key: somebody else's save may have made new rows."""
        super().add_fields(form, index)
        form.fields["id"] = forms.CharField(required=False, widget=forms.HiddenInput)

    def _construct_form(self, i: int, **kwargs: Any) -> Any:
        form = super()._construct_form(i, **kwargs)  # type: ignore[misc]  # Django's hook, without a stub
        form.fields["id"].required = False
        return form

    def initial_form_count(self) -> int:
        """Return at most the number of forms: the browser sends this number, and it may be wrong."""
        return (
            min(super().initial_form_count(), self.total_form_count())
            if self.is_bound
            else super().initial_form_count()
        )

    def get_queryset(self) -> Any:
        """Return the rules that the page began with, one for each submitted form, so that an error page lacks none."""
        rows = [rule for rule in getattr(self.instance, "loaded_rules", ()) if rule.kind == self.form.kind]
        if not self.is_bound:
            return rows
        wanted = self.initial_form_count()
        return rows[:wanted] + [Rule() for _ in range(wanted - len(rows))]

    def kept_forms(self) -> list[RuleForm]:
        """Return the rows that aren't deleted: those with a position in that order, then the others."""
        alive = [form for form in self.forms if form not in self.deleted_forms and self._is_filled(form)]
        return sorted(alive, key=self._place)

    def rules(self) -> list[Rule]:
        """Return the rows that aren't deleted, as rules."""
        return [form.as_rule() for form in self.kept_forms()]

    def clean(self) -> None:
        """Check the rules with the engine; each fault is shown at its row and field."""
        super().clean()
        rows = self.kept_forms()
        document = compiler.document_of_rules(
            name="checked", description="", params={}, tests=[], rules=[form.as_rule() for form in rows]
        )
        for fault in faults_of(document):
            self._place_fault(rows, fault)

    def _place_fault(self, rows: list[RuleForm], fault: Fault) -> None:
        place = _PLACE.fullmatch(fault.path)
        if place is None:
            raise ValidationError(str(fault))
        form = rows[int(place[1])]
        member = place[2] or form.chosen_by  # a row that is neither built-in nor expression: show it at that choice
        if (member == "bounds" and "bounds_high" in form.errors) or _FIELDS.get(member, member) in form.errors:
            return  # the field's own fault is more precise
        field = _FIELDS.get(member, member)
        said = f"{place[3].strip('.')}: {fault.message}" if place[3] else describe(fault, form.as_rule().expression)
        form.add_error(field if field in form.fields else form.chosen_by, said)

    def _place(self, form: RuleForm) -> tuple[int, int]:
        position = form.cleaned_data.get("position")
        return (_LAST if position is None else position, self.forms.index(form))

    def _is_filled(self, form: forms.Form) -> bool:
        return hasattr(form, "cleaned_data") and (not form.empty_permitted or form.has_changed())


class _RuleInline(StackedInline):
    model = Rule
    formset = RuleFormSet
    kind: Rule.Kind
    extra = 0
    max_num = MAX_RULES
    ordering_field = "position"
    hide_ordering_field = True
    ordering = ("position", "pk")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(kind=self.kind)

    def get_formset(self, request: Any, obj: Any = None, **kwargs: Any) -> Any:
        return super().get_formset(request, obj, absolute_max=_MOST_ROWS, **kwargs)

    # People who may edit the rule set may edit its rules.
    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        return True

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return True

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return True


class FilterInline(_RuleInline):
    """Filters as rows."""

    kind = Rule.Kind.FILTER
    form = FilterForm
    verbose_name = "filter"
    verbose_name_plural = "Filters: which nodes a Pod may use"
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("builtin", "name", "mode"),
                    "expression",
                    ("reason", "on_error", "preemption_helps"),
                    "arguments",
                    "position",
                )
            },
        ),
    )


class ScoreInline(_RuleInline):
    """Scores as rows."""

    kind = Rule.Kind.SCORE
    form = ScoreForm
    verbose_name = "score"
    verbose_name_plural = "Scores: how good a node is"
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("builtin", "name", "weight", "mode"),
                    "expression",
                    ("bounds_low", "bounds_high"),
                    "arguments",
                    "position",
                )
            },
        ),
    )


class VictimInline(_RuleInline):
    """Victims rules as rows."""

    kind = Rule.Kind.VICTIM
    form = VictimForm
    verbose_name = "victims rule"
    verbose_name_plural = "Victims: which Pods preemption may remove"
    fieldsets = ((None, {"fields": (("name", "mode"), "expression", ("reason", "on_error"), "position")}),)


INLINES = (FilterInline, ScoreInline, VictimInline)
