"""A rule set as text: the same document as in its form, saved in the same way, with the same check for other edits."""

import re

import msgspec
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST
from unfold.widgets import UnfoldAdminTextareaWidget

from policies import checking, manifests, publishing
from policies.admin.base import change_url, edit_url, person
from policies.admin.editing import EditForm, open_change_of, say_saved
from policies.admin.faults import FieldFault
from policies.admin.help import HELP
from policies.admin.panels import draft_links
from policies.admin.rule_tests import Results, may_check, results_of, say_results
from policies.admin.versions import content_of
from policies.engine import ruleset as engine
from policies.engine.documents import document_of
from policies.engine.errors import RuleSetError
from policies.models import RuleSet, RuleSetVersion
from policies.models.ruleset import validate_name
from policies.publishing import Key, Kind, PublishingError

EDIT = "policies.change_rulesetversion"
_FIELD = "id_text"
_LINE = re.compile(r"line:(\d+): ")


class TextForm(EditForm):
    """The document as YAML or JSON, and the choice of the Change."""

    text = forms.CharField(
        label="Document",
        strip=False,
        max_length=2_000_000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 32, "class": "berth-code", "spellcheck": "false"}),
    )

    class Meta:
        model = RuleSetVersion
        fields: list[str] = []

    faults: list[FieldFault]
    rule_set: engine.RuleSet

    def key(self) -> Key:
        """Return kind and name."""
        return Kind.RULE_SET, self.instance.rule_set.name

    def clean_text(self) -> str:
        """Check the document as publishing does; each fault is kept with its line.

        Raises:
            ValidationError: it has faults.
        """
        text: str = self.cleaned_data["text"]
        try:
            self.faults = []
            self.rule_set = _read(text, self.key()[1])
        except _FaultyError as error:
            self.faults = error.faults
            raise ValidationError([f"line {each.line}: {each.message}" for each in error.faults]) from error
        return text


class _FaultyError(Exception):
    def __init__(self, faults: list[FieldFault]) -> None:
        super().__init__()
        self.faults = faults


def _read(text: str, name: str) -> engine.RuleSet:
    """Return the rule set in a text.

    Raises:
        _FaultyError: with every fault, each at its line.
    """
    try:
        documents = checking.read_documents(text, "line")
    except RuleSetError as error:
        raise _FaultyError([_of_syntax(fault.message) for fault in error.faults]) from error
    if len(documents) != 1:
        message = f"this has {len(documents)} documents, but one is expected; to load several at once, use Import on the list of rule sets"
        raise _FaultyError([FieldFault(_FIELD, "line 1", message, 1)])
    (located,) = documents
    try:
        found = checking.read_rule_set(located.document)
    except RuleSetError as error:
        raise _FaultyError([_at(located.line_of(fault.path), str(fault)) for fault in error.faults]) from error
    if found.name != name:
        message = f"metadata.name: this is the text of {name} and can't be renamed; to use another name, duplicate the rule set"
        raise _FaultyError([_at(located.line_of("metadata.name"), message)])
    return found


def _at(line: int, message: str) -> FieldFault:
    return FieldFault(_FIELD, f"line {line}", message, line)


def _of_syntax(message: str) -> FieldFault:
    found = _LINE.match(message)
    return _at(int(found[1]) if found else 1, message[found.end() :] if found else message)


@admin.site.admin_view
@permission_required(EDIT, raise_exception=True)
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the text of a rule set, as in the Change that the address names, and save it into a Change."""
    form = _form(request, name)
    if request.method == "POST" and form.is_valid():
        try:
            return _saved(request, form)
        except PublishingError as error:
            form = _form(request, name, error)
            form.is_valid()
    return _page(request, form)


@admin.site.admin_view
@permission_required(EDIT, raise_exception=True)
@require_POST
def check(request: HttpRequest, name: str) -> HttpResponse:
    """Return the faults of the unsaved text as JSON. Nothing is saved."""
    if not may_check(request):
        return JsonResponse({"faults": None}, status=429)
    faults: list[FieldFault] = []
    try:
        _read(request.POST.get("text", ""), name)
    except _FaultyError as error:
        faults = error.faults
    return JsonResponse({"faults": [msgspec.to_builtins(fault) for fault in faults]})


def _form(request: HttpRequest, name: str, refusal: PublishingError | None = None) -> TextForm:
    try:
        validate_name(name)
    except ValidationError as error:
        raise Http404 from error
    change = open_change_of(request)
    made = type("Form", (TextForm,), {"loaded_from": change, "refusal": refusal})
    rule_set = RuleSet.objects.filter(name=name).first() or RuleSet(name=name)
    instance = RuleSetVersion(rule_set=rule_set, number=0)
    content = content_of(rule_set, change)
    form: TextForm = made(
        request.POST if request.method == "POST" else None,
        instance=instance,
        initial={"text": manifests.to_yaml(document_of(content))},
    )
    form.rule_set = content
    return form


def _saved(request: HttpRequest, form: TextForm) -> HttpResponse:
    name, chosen = form.key()[1], form.chosen()
    saved = publishing.save_edit(
        edit=publishing.Edit.of(form.rule_set),
        change=chosen,
        by=person(request),
        title=form.cleaned_data["new_title"] or f"rule set {name}",
        seen=form.cleaned_data["loaded_digest"],
    )
    say_results(request, results_of(form.rule_set))
    if saved is None:
        messages.info(request, f"{name} equals what is live: there was nothing to save.")
        return HttpResponseRedirect(reverse("rule_set_text", args=[name]))
    say_saved(request, form.key(), saved)
    if "_continue" in request.POST:
        return HttpResponseRedirect(f"{reverse('rule_set_text', args=[name])}?change={saved.pk}")
    return HttpResponseRedirect(change_url(saved.pk))


def _page(request: HttpRequest, form: TextForm) -> HttpResponse:
    name, change = form.key()[1], form.loaded_from
    results = Results(0, 0) if form.is_bound else results_of(form.rule_set)
    context = {
        **admin.site.each_context(request),
        "title": f"Rule set {name} as text",
        "name": name,
        "form": form,
        "where": [form["goes_into"], form["new_title"]],
        "editor": {
            "faults": getattr(form, "faults", []),
            "results": results,
            "links": draft_links(name, change),
            "form_url": edit_url(Kind.RULE_SET, name, change),
            "check_url": reverse("rule_set_text_check", args=[name]),
            "help": HELP,
        },
    }
    return TemplateResponse(request, "policies/rule_set_text.html", context)
