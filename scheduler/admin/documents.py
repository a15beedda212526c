"""Pages that import and export documents: YAML for `apply` and from `export`, and the classic Policy."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from policies import checking, manifests, publishing
from policies.admin.base import change_url, person
from policies.admin.panels import add_list_link
from policies.classic import export_policy
from policies.engine import ruleset as engine
from policies.engine.documents import document_of
from policies.engine.errors import Fault, RuleSetError
from policies.models.ruleset import validate_name
from policies.publishing import Kind, PublishingError
from scheduler.applying import Applied, DocumentsError, Wish, apply, read_files

_IMPORT, EXPORT = "policies.change_rulesetversion", "policies.view_ruleset"
_LONGEST = 2_000_000
_TEXT = "line"
_ALONE = (
    "a file of kube-scheduler's is imported by itself, because only then the name below is its own: leave the rest out"
)


class ImportForm(forms.Form):
    """Documents as text, and a title for their Change. The server accepts no files: a script reads one into the field."""

    text = forms.CharField(
        label="Documents",
        strip=False,
        max_length=_LONGEST,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 16, "class": "berth-code", "spellcheck": "false"}),
        help_text="YAML or JSON; separate documents by ---: rule sets, Assignments, PriorityClasses, Pauses, Exemptions; or one kube-scheduler file: a classic Policy or a KubeSchedulerConfiguration.",
    )
    name = forms.CharField(
        label="Name for the rule set from a kube-scheduler file",
        required=False,
        validators=[validate_name],
        widget=UnfoldAdminTextInputWidget(),
        help_text="Such a file doesn't name one. With several profiles, each one's scheduler name is appended.",
    )
    title = forms.CharField(
        label="Title of the Change",
        max_length=200,
        initial="Import",
        widget=UnfoldAdminTextInputWidget(),
    )

    def take_in(self, by: Any) -> Applied | None:
        """Open a Change with the documents; return None if there are faults, which are shown above the form."""
        try:
            documents = read_files(objects=made) if (made := self._imported()) else self._read()
            return apply(documents, Wish(title=self.cleaned_data["title"]), by=by)
        except DocumentsError as error:
            said = [each.text for each in error.faults]
        except (RuleSetError, PublishingError) as error:
            said = [str(fault) for fault in error.faults] if isinstance(error, RuleSetError) else list(error.messages)
        for each in said:
            self.add_error(None, _of_text(each))
        return None

    def _read(self) -> Any:
        return read_files([(_TEXT, self.cleaned_data["text"])])

    def _imported(self) -> list[dict[str, Any]]:
        """Return the documents made from a file of kube-scheduler's; an empty list for other documents.

        Raises:
            RuleSetError: with every fault in the file; or it is beside other documents: the form has one name for its rule set.
        """
        found = checking.read_documents(self.cleaned_data["text"], _TEXT)
        items = [item for each in found for item in each.items()]
        schedulers = [each for each in items if _is_kube_schedulers(each.document)]
        if not schedulers:
            return []
        if len(found) > 1 or len(schedulers) < len(items):
            raise RuleSetError([Fault("", schedulers[0].describe(Fault("", _ALONE)))])
        name = self.cleaned_data["name"] or "imported"
        made, faults = [], []
        for each in items:
            try:
                made.append(document_of(checking.import_policy(each.document, name=name)))
            except RuleSetError as error:
                faults += [Fault("", each.describe(fault)) for fault in error.faults]
        if faults:
            raise RuleSetError(list(dict.fromkeys(faults)))
        return made


def _of_text(said: str) -> str:
    """Return what was said of the text; where no line is known, without the word that would stand before its number."""
    return said.removeprefix(f"{_TEXT}: ")


def _is_kube_schedulers(document: object) -> bool:
    return isinstance(document, dict) and document.get("kind") in manifests.KUBE_SCHEDULERS


class ExportForm(forms.Form):
    """The objects to export, and their format."""

    what = forms.ChoiceField(label="What", required=False, widget=UnfoldAdminSelectWidget)
    form = forms.ChoiceField(
        label="As",
        choices=[
            ("yaml", "YAML, as apply reads it"),
            ("policy", "classic Policy: for one rule set that uses nothing else"),
        ],
        widget=UnfoldAdminSelectWidget,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.live = {each.name: each for each in publishing.current_revision().rule_sets}
        choices = [("", "everything that is live"), *((name, f"rule set {name}") for name in sorted(self.live))]
        self.fields["what"].choices = choices  # type: ignore[attr-defined] # as declared

    def written(self, by: Any) -> HttpResponse | None:
        """Return the file; None if there are faults, which are shown above the form."""
        name, form = self.cleaned_data["what"], self.cleaned_data["form"]
        policy = ""
        if form == "policy":
            policy = self._policy(self.live.get(name))
            if not policy:
                return None
        try:
            text = publishing.export(by=by, kind=Kind.RULE_SET if name else "", names=[name] if name else [])
        except PublishingError as error:
            for said in error.messages:
                self.add_error(None, said)
            return None
        ending, kind = ("json", "application/json") if policy else ("yaml", "application/yaml")
        disposition = f'attachment; filename="{name or "berth"}.{ending}"'
        return HttpResponse(policy or text, content_type=kind, headers={"Content-Disposition": disposition})

    def _policy(self, rule_set: engine.RuleSet | None) -> str:
        if rule_set is None:
            self.add_error("what", "A classic Policy holds one rule set: choose one.")
            return ""
        try:
            return manifests.to_json(export_policy(rule_set))
        except RuleSetError as error:
            for fault in error.faults:
                self.add_error(None, f"A classic Policy can't express {fault}")
            return ""


@admin.site.admin_view
@permission_required(_IMPORT, raise_exception=True)
def take_in(request: HttpRequest) -> HttpResponse:
    """Show the import form, and open a Change with its documents. Nothing goes live."""
    form = ImportForm(request.POST or None)
    made = form.take_in(person(request)) if form.is_bound and form.is_valid() else None
    if made is None:
        says = "The documents go into a Change, which is reviewed and published like any other. Objects that they don't name stay as they are."
        return _page(request, form, "Import", says, "Open a Change")
    for said in made.notes:
        messages.info(request, _of_text(said))
    if made.change is None:
        messages.info(request, "Everything in it is already live: there was nothing to change.")
        return HttpResponseRedirect(reverse("admin:policies_ruleset_changelist"))
    for said in made.beside:
        messages.warning(request, f"{said}.")
    messages.success(request, f"{made.heading}. It isn't live until that Change is published.")
    return HttpResponseRedirect(change_url(made.change.pk))


@admin.site.admin_view
@permission_required(EXPORT, raise_exception=True)
def give_out(request: HttpRequest) -> HttpResponse:
    """Show the export form, and send the file; the audit trail records who exported it."""
    form = ExportForm(request.POST or None, initial={"what": request.GET.get("rule_set", "")})
    if form.is_bound and form.is_valid() and (sent := form.written(person(request))):
        return sent
    return _page(
        request,
        form,
        "Export",
        "Exports what is live, as documents. The audit trail records who exported them.",
        "Export",
    )


def _page(request: HttpRequest, form: forms.Form, title: str, says: str, button: str) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, "says": says, "button": button, "form": form}
    return TemplateResponse(request, "scheduler/documents.html", context)


def _import_link(request: HttpRequest) -> tuple[str, str] | None:
    return ("Import…", reverse("import_documents")) if request.user.has_perm(_IMPORT) else None


def _export_link(request: HttpRequest) -> tuple[str, str] | None:
    return ("Export…", reverse("export_documents")) if request.user.has_perm(EXPORT) else None


add_list_link(_import_link)
add_list_link(_export_link)
