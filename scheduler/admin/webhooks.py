"""Webhooks: their targets, the result of each delivery, and the buttons that test, renew and send again."""

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from unfold.widgets import UnfoldAdminTextInputWidget

from policies.admin.base import person
from policies.parameters import read_parameters, whole_number
from scheduler.models import Delivery, Webhook
from scheduler.notices.table import WORDS
from scheduler.webhooks import keeping

_MAY = "scheduler.manage_webhook"
_PER_PAGE = 50
_BADLY_ASKED = 400
# The largest number of a delivery in either database.
_LARGEST = 2**63 - 1
_ASKS = {"before": partial(whole_number, largest=_LARGEST)}
_HOOKS = 200


class WebhookForm(forms.Form):
    """A webhook."""

    name = forms.CharField(max_length=100, widget=UnfoldAdminTextInputWidget())
    url = forms.CharField(
        label="URL",
        max_length=2000,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="https://… Stored encrypted, and not shown again.",
    )
    format = forms.ChoiceField(
        choices=Webhook.Format.choices,
        widget=forms.Select(attrs={"class": "berth-input"}),
        help_text="JSON for programs; Slack or Teams for their incoming webhooks.",
    )
    kinds = forms.MultipleChoiceField(
        label="Notices to send",
        choices=[(str(key), words) for key, words in WORDS.items()],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None selected: all kinds, including those added in later versions.",
    )
    is_active = forms.BooleanField(label="On", required=False, initial=True)

    def wanted(self) -> keeping.Wanted:
        """Return what was typed."""
        return keeping.Wanted(**self.cleaned_data)


class ChangeForm(WebhookForm):
    """An existing webhook: its URL isn't shown."""

    url = forms.CharField(
        label="New URL",
        max_length=2000,
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Empty: keep the current URL.",
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def wanted(self) -> keeping.Wanted:
        """Return what was typed."""
        return keeping.Wanted(**{name: value for name, value in self.cleaned_data.items() if name != "seen"})


def _with_proof() -> QuerySet[Webhook]:
    """Return the webhooks, each with whether a delivery ever succeeded: otherwise it isn't known to work."""
    done = Delivery.objects.filter(webhook=OuterRef("pk"), state=Delivery.State.DELIVERED)
    return Webhook.objects.annotate(is_proved=Exists(done))


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """List the webhooks, and their state."""
    waits = Count("deliveries", filter=Q(deliveries__state=Delivery.State.WAITING))
    found = Paginator(_with_proof().annotate(waiting=waits).order_by("name"), _HOOKS).get_page(request.GET.get("p"))
    context = {
        **admin.site.each_context(request),
        "title": "Webhooks",
        "page": found,
        "rows": [{"row": row, "kinds": _kinds(row)} for row in found],
    }
    return TemplateResponse(request, "scheduler/webhooks.html", context)


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
@never_cache
def add(request: HttpRequest) -> HttpResponse:
    """Create a webhook, and show its secret."""
    form = WebhookForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made, secret = keeping.make_webhook(form.wanted(), by=person(request), now=timezone.now())
        except keeping.WebhookError as error:
            form.add_error(None, str(error))
        else:
            return _secret(request, made, secret)
    context = {**admin.site.each_context(request), "title": "Add a webhook", "form": form}
    return TemplateResponse(request, "scheduler/webhook_add.html", context)


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
def detail(request: HttpRequest, number: int) -> HttpResponse:
    """Show a webhook and its deliveries, and change it."""
    row = get_object_or_404(Webhook, pk=number)
    typed = {"name": row.name, "format": row.format, "kinds": row.kinds, "is_active": row.is_active}
    # After a refusal, the buttons still compare with what was looked at.
    seen = request.POST.get("seen") or keeping.digest_of_webhook(row)
    form = ChangeForm(request.POST or None, initial=typed | {"seen": seen})
    if request.method == "POST" and form.is_valid():
        try:
            # A request without a digest matches no state.
            looked_at = form.cleaned_data["seen"] or "none"
            keeping.change_webhook(row, form.wanted(), by=person(request), expected_digest=looked_at)
        except keeping.WebhookError as error:
            if not Webhook.objects.filter(pk=number).exists():
                return _refused(request, number, error)
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Webhook {row.name} was changed.")
            return HttpResponseRedirect(reverse("webhook", args=[row.pk]))
    asked, faults = read_parameters(request.GET.dict(), _ASKS, what="deliveries")
    log = row.deliveries.select_related("notice").order_by("-pk")
    log = log.filter(pk__lt=asked["before"]) if asked else log
    found = [] if faults else list(log[: _PER_PAGE + 1])
    # As it is stored: a refused change is only in `row`, and a colleague may have removed it since.
    hook = get_object_or_404(_with_proof(), pk=number)
    context = {
        **admin.site.each_context(request),
        "title": f"Webhook {hook.name}",
        "hook": hook,
        "is_held": hook.held_until is not None and hook.held_until > timezone.now(),
        "seen": seen,
        "form": form,
        "deliveries": [(each, max(each.next_at, hook.held_until or each.next_at)) for each in found[:_PER_PAGE]],
        "before": found[_PER_PAGE - 1].pk if len(found) > _PER_PAGE else 0,
        "has_former": bool(asked),
        "faults": faults,
    }
    return TemplateResponse(request, "scheduler/webhook.html", context, status=_BADLY_ASKED if faults else None)


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
@require_POST
@never_cache
def renew(request: HttpRequest, number: int) -> HttpResponse:
    """Make a new secret, and show it."""
    row = get_object_or_404(Webhook, pk=number)
    try:
        secret = keeping.renew_secret(row, by=person(request))
    except keeping.WebhookError as error:
        return _refused(request, number, error)
    return _secret(request, row, secret)


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
@require_POST
def test(request: HttpRequest, number: int) -> HttpResponse:
    """Queue a test."""
    row = get_object_or_404(Webhook, pk=number)
    try:
        made = keeping.send_test(row, by=person(request), now=timezone.now())
    except keeping.WebhookError as error:
        return _refused(request, number, error)
    _tell_of(request, made, f"Delivery {made.pk} was queued: the log below shows its result.")
    return HttpResponseRedirect(reverse("webhook", args=[row.pk]))


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
@require_POST
def delete(request: HttpRequest, number: int) -> HttpResponse:
    """Delete a webhook."""
    row = get_object_or_404(Webhook, pk=number)
    try:
        keeping.delete_webhook(row, by=person(request), expected_digest=request.POST.get("seen", ""))
    except keeping.WebhookError as error:
        return _refused(request, number, error)
    messages.success(request, f"Webhook {row.name} was removed.")
    return HttpResponseRedirect(reverse("webhooks"))


@admin.site.admin_view
@permission_required(_MAY, raise_exception=True)
@require_POST
def again(request: HttpRequest, number: int) -> HttpResponse:
    """Queue a delivery again."""
    row = get_object_or_404(Delivery.objects.select_related("webhook", "notice"), pk=number)
    try:
        made = keeping.send_again(row, by=person(request), now=timezone.now())
    except keeping.WebhookError as error:
        return _refused(request, row.webhook_id, error)
    _tell_of(request, made, f"Sent again, as delivery {made.pk}.")
    return HttpResponseRedirect(reverse("webhook", args=[row.webhook_id]))


def _refused(request: HttpRequest, number: int, error: keeping.WebhookError) -> HttpResponse:
    """Go to the webhook, or to the list if it is gone, and show why it can't be done."""
    messages.error(request, str(error))
    is_there = Webhook.objects.filter(pk=number).exists()
    return HttpResponseRedirect(reverse("webhook", args=[number]) if is_there else reverse("webhooks"))


def _tell_of(request: HttpRequest, made: Delivery, words: str) -> None:
    """Show a message about a requested delivery: a disabled webhook gets none."""
    if made.webhook.is_active:
        messages.success(request, words)
    else:
        messages.warning(request, f"Delivery {made.pk} is queued: {made.webhook.name} is off.")


def _secret(request: HttpRequest, row: Webhook, secret: str) -> HttpResponse:
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": f"The secret of webhook {row.name}",
        "hook": row,
        "secret": secret,
    }
    return TemplateResponse(request, "scheduler/webhook_secret.html", context)


def _kinds(row: Webhook) -> str:
    return ", ".join(words for key, words in WORDS.items() if key in row.kinds) or "everything"
