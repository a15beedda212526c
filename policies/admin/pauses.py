"""Pauses and Exemptions: the banner of every page, the list, and the pages that pause, exempt and resume."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from policies import publishing
from policies.admin.base import change_url, person, rows_of, thing_urls
from policies.admin.fields import LinesField, parse_selector
from policies.admin.panels import add_panel
from policies.admin.times import MomentField
from policies.engine import ruleset as engine
from policies.engine.pauses import EVERYTHING, Target
from policies.models import Assignment, Change, RuleSet
from policies.sentences import exempt_pods_sentence, not_paused, suspension_sentence, target_in_words

_SEE = "policies.view_revision"
_MAY = "policies.change_ruleset"
_PER_PAGE = 100


def suspensions(request: HttpRequest) -> dict[str, Any]:
    """Return the contents of every page's banner; pages without the banner run no query."""
    return {
        "suspensions": SimpleLazyObject(lambda: _banner(request)),
        "may_resume": SimpleLazyObject(lambda: _may(request)),
    }


def _may(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return bool(user and user.has_perm(_MAY))


def _banner(request: HttpRequest) -> list[publishing.Suspended]:
    user = getattr(request, "user", None)
    if user is None or not user.has_perm(_SEE):
        return []
    # A long list is folded: what is in force stays in sight.
    return sorted(_live(engine.Pause), key=lambda each: each.has_ended)


class _WhyForm(forms.Form):
    """The reason, and the digest of what its author was looking at."""

    reason = LinesField(
        label="Reason",
        max_length=1000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "placeholder": "Why now? A ticket number helps."}),
        help_text="Kept with the Revision; auditors read it.",
    )
    digest = forms.CharField(required=False, widget=forms.HiddenInput)


def _until(**options: Any) -> MomentField:
    widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"})
    return MomentField(widget=widget, **options)


class _PauseForm(_WhyForm):
    """The reason, and the duration of a Pause."""

    hours = forms.TypedChoiceField(
        label="For",
        coerce=int,
        choices=(("", "until somebody resumes it"), (1, "1 hour"), (4, "4 hours"), (24, "1 day"), (168, "1 week")),
        required=False,
        empty_value=None,
        widget=UnfoldAdminSelectWidget,
        help_text="Counted from now. The Pause then ends by itself.",
    )
    until = _until(label="Or until (UTC)", required=False, help_text="In place of the choice above.")

    field_order = ("hours", "until", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = "Kept with the Revision, and shown to everybody while the Pause lasts."

    def clean(self) -> None:
        """Compute the end; refuse two of them, unless one is that of the Pause which this replaces."""
        super().clean()
        hours, until = self.cleaned_data.get("hours"), self.cleaned_data.get("until")
        if hours and until and until != self.fields["until"].to_python(self.initial.get("until")):
            self.add_error("until", "Choose how long, or until when, but not both.")
        elif hours:
            self.cleaned_data["until"] = timezone.now().replace(microsecond=0) + timedelta(hours=hours)


class _ExemptionForm(_WhyForm):
    """An Exemption without its target."""

    name = forms.CharField(label="Name", max_length=63, widget=UnfoldAdminTextInputWidget)
    owner = forms.CharField(
        label="Owner",
        max_length=200,
        widget=UnfoldAdminTextInputWidget,
        help_text="The person or team responsible, to contact when it ends.",
    )
    target = forms.CharField(
        label="Exempt from",
        widget=UnfoldAdminTextInputWidget,
        help_text="RuleSet/NAME for all of its rules, or RuleSet/NAME/RULE.",
    )
    pods = forms.CharField(
        label="Which Pods",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4, "class": "berth-code", "spellcheck": "false"}),
        help_text="One per line: shop/cart-0 for a Pod, shop/Deployment/cart for a workload, shop team=web for labels.",
    )
    until = _until(label="Until (UTC)", help_text="Every Exemption ends.")

    # The digest of the Exemption of this name that was shown, so that another one isn't replaced unseen.
    replaces = forms.CharField(required=False, widget=forms.HiddenInput)

    field_order = ("name", "owner", "target", "pods", "until", "reason")

    def clean_pods(self) -> list[dict[str, Any]]:
        """Return the entries in a document's form.

        Raises:
            ValidationError: with each line that names no Pods.
        """
        entries, faults = [], []
        for line in _lines(self.cleaned_data["pods"]):
            try:
                entries.append(_entry(line))
            except ValidationError as error:
                faults.append(error)
        if faults:
            raise ValidationError(faults)
        return entries

    def clean(self) -> dict[str, Any]:
        """Check the whole document and show each fault at its field, except at fields that are faulty already."""
        typed = super().clean() or self.cleaned_data
        faulty = {*self.errors}
        spec: dict[str, Any] = {
            member: typed[member] for member in ("owner", "target", "reason", "pods") if member in typed
        }
        spec |= {"until": _text(typed["until"])} if typed.get("until") else {}
        for fault in publishing.exemption_faults(typed.get("name", ""), spec):
            found = _PLACE.match(fault.path)
            if found is None or found["field"] not in self.fields or found["field"] in faulty:
                continue
            line = f"“{_lines(self.data['pods'])[int(found['entry'])].strip()}”: " if found["entry"] else ""
            self.add_error(found["field"], f"{line}{fault.message}")
        return typed


# The path of a fault in the document of an Exemption.
_PLACE = re.compile(r"(?:metadata|spec)\.(?P<field>\w+)(?:\[(?P<entry>\d+)\])?")


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _entry(line: str) -> dict[str, Any]:
    where, _, labels = line.strip().partition(" ")
    namespace, *rest = where.split("/")
    entry: dict[str, Any] = {"namespace": namespace}
    if len(rest) == 1:
        entry["name"] = rest[0]
    elif len(rest) > 1:
        entry["owner"] = {"kind": rest[0], "name": "/".join(rest[1:])}
    if labels.strip():
        entry["selector"] = parse_selector(labels)
    if len(entry) == 1:
        message = f"“{line.strip()}” doesn't select Pods: write NAMESPACE/POD, NAMESPACE/KIND/NAME or NAMESPACE LABELS"
        raise ValidationError(message)
    return entry


@admin.site.admin_view
@permission_required(_SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """List the live Pauses, then the Exemptions, in pages; `q` finds those that mention a text."""
    asked = request.GET.get("q", "").strip()
    matching = publishing.suspended(timezone.now())
    if folded := asked.casefold():
        matching = [each for each in matching if _mentions(each, folded)]
    found = Paginator(matching, _PER_PAGE).get_page(request.GET.get("p"))
    about = {
        each.value.target: (target.kind, target.name) for each in found if (target := Target.parse(each.value.target))
    }
    pages = thing_urls(rows_of(about.values()))
    urls = {target: pages.get(key, "") for target, key in about.items()}
    context = {
        **admin.site.each_context(request),
        "title": "Pauses and Exemptions",
        "asked": asked,
        "page": found,
        "kept": _kept(request),
        "pauses": [(each, urls[each.value.target]) for each in found if isinstance(each.value, engine.Pause)],
        "exemptions": [
            {
                "row": each,
                "url": urls[each.value.target],
                "pods": [exempt_pods_sentence(entry) for entry in each.value.pods],
            }
            for each in found
            if isinstance(each.value, engine.Exemption)
        ],
        "ending": {each.value.name for each in publishing.ending_soon(timezone.now())},
    }
    return TemplateResponse(request, "policies/pauses.html", context)


def _mentions(each: publishing.Suspended, folded: str) -> bool:
    said = [each.value.name, each.value.target, each.what, each.value.reason, each.by]
    if isinstance(each.value, engine.Exemption):
        said += [each.value.owner, *map(exempt_pods_sentence, each.value.pods)]
    return any(folded in words.casefold() for words in said)


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
def pause(request: HttpRequest) -> HttpResponse:
    """Ask for the duration and the reason, and pause the target."""
    target = request.GET.get("target") or EVERYTHING

    def act(form: forms.Form) -> Change:
        until = form.cleaned_data["until"]
        return publishing.pause(target=target, until=_text(until) if until else "", by=person(request), **_why(form))

    def look() -> dict[str, Any]:
        return _pausing(target)

    return _ask(request, _PauseForm, act, look)


def _pausing(target: str) -> dict[str, Any]:
    says = (
        "Berth's rules, scores and Assignments stop having any effect: kube-scheduler places Pods by its own rules, and Berth's own "
        "scheduler by the classic default set."
        if target == EVERYTHING
        else f"It stops having any effect within a few seconds, in every process: {_means(target)}."
    )
    about = [each for each in _live(engine.Pause) if each.value.target == target]
    in_force = sorted((each for each in about if not each.has_ended), key=_lasts_until)
    end = in_force[-1].ends_at if in_force else None
    if len(in_force) > 1:
        says = "It is paused already. This replaces the Pause that lasts longest, and no other outlasts it."
    elif in_force:
        says = "It is paused already. This replaces that Pause: its reason, and its end."
    return {
        "title": f"Pause {target_in_words(target)}",
        "says": says,
        "button": "Pause",
        "about": about,
        "edits": [publishing.Edit.of(engine.Pause(name="pause", target=target, reason=""))],
        # Who changes the reason alone keeps the end.
        "initial": {"until": f"{end:%Y-%m-%dT%H:%M:%S}" if end else ""},
    }


def _means(target: str) -> str:
    """Return what a Pause of a target means for its Pods."""
    if target.startswith("Assignment/"):
        return "it takes no Pod, and the next Assignment in order may take the Pods that it would have taken"
    if target.count("/") > 1:
        return "the rule refuses no node, gives no score and protects no Pod"
    return "none of its rules decides about the Pods that its Assignments go on taking"


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
def resume(request: HttpRequest) -> HttpResponse:
    """Ask for the reason, and resume the target."""
    target = request.GET.get("target") or EVERYTHING
    return _ask(
        request,
        _WhyForm,
        lambda form: publishing.resume(target=target, by=person(request), **_why(form)),
        lambda: {
            "title": f"Resume {target_in_words(target)}",
            "says": "It takes effect again, in its live version.",
            "about": [each for each in _live(engine.Pause) if each.value.target == target],
            "gone": f"{not_paused(target)} Somebody may have resumed it in the meantime.",
            "button": "Resume",
        },
    )


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
def exempt(request: HttpRequest) -> HttpResponse:
    """Ask for the Pods, the end and the reason, and exempt these Pods from a rule."""

    def act(form: forms.Form) -> Change:
        typed = form.cleaned_data
        spec = {name: typed[name] for name in ("owner", "target", "reason", "pods")} | {"until": _text(typed["until"])}
        seen = {"expected_digest": typed["digest"], "replaces": typed["replaces"]}
        return publishing.exempt(name=typed["name"], spec=spec, by=person(request), **seen)

    says = "The rule skips these Pods until the Exemption ends: it refuses no node for them and gives no scores."
    target = request.GET.get("target", "")
    sample = engine.Exemption(name="exemption", owner="", target=target or EVERYTHING, reason="", until="", pods=[])
    shown = {"title": "Add an Exemption", "says": says, "button": "Add", "edits": [publishing.Edit.of(sample)]}
    return _ask(request, _ExemptionForm, act, lambda: {"initial": {"target": target}, **shown})


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
def end_exemption(request: HttpRequest) -> HttpResponse:
    """Ask for the reason, and remove an Exemption."""
    name = request.GET.get("name", "")
    return _ask(
        request,
        _WhyForm,
        lambda form: publishing.end_exemption(name=name, by=person(request), **_why(form)),
        lambda: {
            "title": f"End Exemption {name}",
            "says": "The rule applies to these Pods again.",
            "about": [each for each in _live(engine.Exemption) if each.value.name == name],
            "gone": f"There is no Exemption {name}: somebody may have ended it."
            if name
            else "The URL doesn't name an Exemption.",
            "button": "End Exemption",
        },
    )


def _ask(
    request: HttpRequest,
    form_class: type[_WhyForm],
    act: Callable[[forms.Form], Change],
    look: Callable[[], dict[str, Any]],
) -> HttpResponse:
    """Show a form, do its act, and show the outcome.

    Args:
        request: the request.
        form_class: the form.
        act: does it.
        look: returns what the page shows now: `about`, what is suspended already; `edits`, the act's, without which it removes what
            `about` has; `initial`, of the form.
    """
    shown, digest = _looked(look)
    form = form_class(request.POST or None, initial={"digest": digest, **shown.pop("initial", {})})
    faults: Sequence[str] = ()
    if request.method == "POST" and form.is_valid():
        try:
            change = act(form)
        except publishing.PublishingError as error:
            faults = error.messages
            # The typed values stay, and are compared with the present live state, which is shown.
            shown, digest = _looked(look)
            typed = {name: form.data.get(name, "") for name in form.fields} | {"digest": digest}
            if isinstance(error, publishing.OvertakenError) and error.seen:
                typed["replaces"] = error.seen
            shown.pop("initial", None)
            form = form_class(initial=typed)
        else:
            return HttpResponseRedirect(_say(request, change))
    found = shown.pop("about", ())
    removed = [publishing.Edit(publishing.Edit.of(each.value).kind, each.value.name, None) for each in found]
    edits = shown.pop("edits", removed)
    # Don't ask for a reason if the act isn't possible.
    is_gone = "gone" in shown and not found and request.method != "POST"
    context = {
        **admin.site.each_context(request),
        **shown,
        "about": [(each, suspension_sentence(each.value)) for each in found],
        "is_gone": is_gone,
        "is_reviewed": publishing.needs_review(edits),
        "is_gated": publishing.needs_gate(edits),
        "form": form,
        "faults": faults,
        "back": _list_url(request),
    }
    return TemplateResponse(request, "policies/pause.html", context)


def _live(kind: type[engine.Pause | engine.Exemption]) -> list[publishing.Suspended]:
    return [each for each in publishing.suspended(timezone.now()) if isinstance(each.value, kind)]


def _looked(look: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return what a page shows, and the digest of the Revision that it shows it of."""
    with publishing.one_revision():
        return look(), publishing.digest_of_shown(publishing.current_revision().number)


def _say(request: HttpRequest, change: Change) -> str:
    if change.revision is None:
        messages.success(request, f"{change} is in review. It takes effect once {publishing.way_to_live(change)}.")
        return change_url(change.pk)
    messages.success(request, f"{change.revision} was made by {change}: {change.title}.")
    return _list_url(request)


def _kept(request: HttpRequest) -> str:
    """Return the search and the page of the list, as parameters that the pages opened from it carry."""
    return urlencode({name: value for name in ("q", "p") if (value := request.GET.get(name))})


def _list_url(request: HttpRequest) -> str:
    kept = _kept(request)
    return f"{reverse('pauses')}?{kept}" if kept else reverse("pauses")


def _why(form: forms.Form) -> dict[str, str]:
    # A request without a digest matches no state.
    return {"reason": form.cleaned_data["reason"], "expected_digest": form.cleaned_data["digest"] or "none"}


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def pause_url(target: str) -> str:
    """Return the URL of the page that pauses a target."""
    return f"{reverse('pause')}?{urlencode({'target': target})}"


def _exempt_url(target: str) -> str:
    return f"{reverse('exempt')}?{urlencode({'target': target})}"


def resume_url(target: str) -> str:
    """Return the URL of the page that resumes a target."""
    return f"{reverse('resume')}?{urlencode({'target': target})}"


def _panel(title: str, targets: Mapping[str, Sequence[str]], request: HttpRequest) -> SafeString:
    """Show whether targets are paused, with a link to pause or resume each for users who may.

    Each is given with the targets whose Pause suspends it, too.
    """
    # Files can make several Pauses of a target: the one that lasts longest is shown.
    live = {each.value.target: each for each in sorted(_live(engine.Pause), key=_lasts_until)}
    in_force = {target for target, each in live.items() if not each.has_ended}
    rows = [
        {
            "what": target_in_words(target),
            "paused": live.get(target),
            "paused_with": next((target_in_words(each) for each in around if each in in_force), ""),
            "pause_url": pause_url(target),
            "resume_url": resume_url(target),
            "exempt_url": _exempt_url(target) if target.startswith("RuleSet/") else "",
        }
        for target, around in targets.items()
    ]
    return SafeString(
        render_to_string("policies/pause_panel.html", {"title": title, "rows": rows, "may": _may(request)})
    )


def _lasts_until(pause: publishing.Suspended) -> datetime:
    return publishing.lasts_until(pause.value)


def _of_rule_set(row: RuleSet, request: HttpRequest) -> SafeString:
    found = next((each for each in publishing.current_revision().rule_sets if each.name == row.name), None)
    if found is None:
        return SafeString("")
    whole = f"RuleSet/{row.name}"
    rules = {f"{whole}/{key}": [EVERYTHING, whole] for key in found.spec.keys}
    return _panel("Pause", {whole: [EVERYTHING], **rules}, request)


def _of_assignment(row: Assignment, request: HttpRequest) -> SafeString:
    found = next((each for each in publishing.current_revision().assignments if each.name == row.name), None)
    if found is None:
        return SafeString("")
    return _panel("Pause", {f"Assignment/{row.name}": [EVERYTHING, f"RuleSet/{found.rule_set}"]}, request)


add_panel(RuleSet, _of_rule_set)
add_panel(Assignment, _of_assignment)
