"""The page that shows which Assignment takes a Pod, and why not those before it."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminTextInputWidget

from policies.admin.base import link
from policies.admin.fields import SelectorField, YAMLField
from policies.engine.which import Which
from policies.models import Assignment
from scheduler.which import AskedError, which_of_cluster, which_of_document

SEE = "policies.view_assignment"
# The most items that a page names, before it shows how many more there are.
_MOST_NAMED = 100


class WhichForm(forms.Form):
    """A Pod of the cluster by its name, or a pasted one."""

    pod = forms.CharField(
        label="Pod in the cluster",
        required=False,
        max_length=600,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "namespace/name"}),
        help_text="As it is now. The namespace defaults to default.",
    )
    document = YAMLField(
        empty={},
        rows=12,
        label="Or a Pod as YAML",
        help_text="The Pod doesn't have to exist in the cluster; Berth doesn't store it.",
    )
    namespace_labels = SelectorField(
        label="Labels of its namespace",
        help_text="For a Pod as YAML, if Assignments match by them: env=live, team=web",
    )

    def clean_namespace_labels(self) -> Mapping[str, str]:
        """Accept only labels.

        Raises:
            ValidationError: the text contains more than labels and their values.
        """
        given: dict[str, Any] = self.cleaned_data["namespace_labels"]
        if "matchExpressions" in given:
            message = "Write labels as name=value, separated by commas."
            raise ValidationError(message)
        labels: dict[str, str] = given.get("matchLabels", {})
        return labels

    def clean(self) -> dict[str, Any]:
        """Check that exactly one Pod is given."""
        cleaned = super().clean() or {}
        if not self.errors and bool(cleaned.get("pod")) == bool(cleaned.get("document")):
            self.add_error(None, "Name a Pod in the cluster, or paste one.")
        return cleaned

    def ask(self) -> Which | None:
        """Return the result; None if the Pod can't be read, with the fault at its field."""
        named = self.cleaned_data["pod"]
        try:
            if named:
                return which_of_cluster(named)
            return which_of_document(self.cleaned_data["document"], self.cleaned_data["namespace_labels"])
        except AskedError as error:
            self.add_error("pod" if named else "document", str(error))
            return None


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """Show which Assignment takes the Pod that the URL names, or the pasted one."""
    named = {"pod": request.GET["pod"]} if "pod" in request.GET else None
    form = WhichForm(request.POST if request.method == "POST" else named)
    found = form.ask() if form.is_bound and form.is_valid() else None
    context = {
        **admin.site.each_context(request),
        "title": "Which Assignment takes this Pod?",
        "form": form,
        "found": found and _shown(found),
        "back": reverse("admin:policies_assignment_changelist"),
    }
    return TemplateResponse(request, "scheduler/which.html", context)


def _shown(found: Which) -> dict[str, Any]:
    named = [found.assignment, *found.shadows, *(each.name for each in found.passed_over), *found.hidden]
    pages = dict(Assignment.objects.filter(name__in=named[: 3 * _MOST_NAMED]).values_list("name", "pk"))

    def linked(name: str) -> Any:
        return link(reverse("admin:policies_assignment_change", args=[pages[name]]), name) if name in pages else name

    return {
        "which": found,
        "assignment": linked(found.assignment),
        "shadows": [linked(name) for name in found.shadows],
        "passed_over": [(linked(each.name), each.why) for each in found.passed_over[:_MOST_NAMED]],
        "more": max(0, len(found.passed_over) - _MOST_NAMED),
        "hidden": [linked(name) for name in found.hidden[:_MOST_NAMED]],
    }
