"""PriorityClasses of the cluster: each beside the published one, with its users, replacements, and available acts."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Page, Paginator
from django.db.models import Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from policies import publishing
from policies.admin.base import (
    Confirmation,
    confirm,
    confirm_going_back,
    edit_url_for,
    may_publish,
    person,
    revision_url,
)
from policies.admin.ladder import signed
from policies.admin.priority_classes import version_sentence
from policies.changes_in_words import part_changes
from policies.engine import ruleset as engine
from policies.models import (
    ClusterPriorityClass,
    PriorityClass,
    PriorityClassLook,
    PriorityClassReplacement,
    PriorityClassUser,
    PriorityClassVersion,
)
from scheduler.admin.links import pod_url, workload_url

SEE, PUBLISH = "policies.view_priorityclass", "policies.publish"
_PER_PAGE = 50
_SHOWN = 10
_State = ClusterPriorityClass.State


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a class of the cluster, or a live one that is missing there."""
    name = unquote(name)
    live, found = publishing.live_priority_classes().get(name), _found(name)
    versions = list(PriorityClassVersion.objects.filter(name=name))
    if live is None and found is None and not versions:
        message = f"There is no PriorityClass {name}, here or in the cluster."
        raise Http404(message)
    state = publishing.priority_class_state(live, found) if live else found
    context = {
        **admin.site.each_context(request),
        "title": f"PriorityClass {name}",
        "name": name,
        "live": live,
        "found": found if found is not None and found.present else None,
        "state": signed(state.state) if state else "not live",
        "message": state.message if state else "",
        "rows": _beside(live, found),
        "look": PriorityClassLook.objects.first(),
        "may_count": may_publish(request),
        "acts": [
            *_ways(request, name, is_made_here=live is not None or bool(versions)),
            *(_acts(name, live, found) if may_publish(request) else []),
        ],
        "versions": [_version(each, may_go_back=may_publish(request)) for each in versions],
        "replacements": PriorityClassReplacement.objects.filter(name=name)[:_SHOWN],
        **_users(request, name, found),
    }
    return TemplateResponse(request, "scheduler/priority_class.html", context)


@admin.site.admin_view
@permission_required(PUBLISH, raise_exception=True)
@require_POST
def count(request: HttpRequest, name: str) -> HttpResponse:
    """Request a count of the classes' users, and redirect to its result."""
    publishing.ask_for_users()
    messages.success(request, "Its Pods are being counted. Reload the page in a few seconds.")
    return HttpResponseRedirect(f"{_url(unquote(name))}#users")


def _found(name: str) -> ClusterPriorityClass | None:
    return ClusterPriorityClass.objects.filter(pk=name).first()


def _beside(live: engine.PriorityClass | None, found: ClusterPriorityClass | None) -> list[dict[str, Any]]:
    """Return the published class and the cluster's, side by side."""
    there = found if found is not None and found.present else None
    sides = [
        ("value", live and f"{live.value:,}", there and f"{there.value:,}"),
        ("globalDefault", live and _yes(live.global_default), there and _yes(there.global_default)),
        ("preemptionPolicy", live and live.preemption_policy, there and there.preemption_policy),
        ("description", live and live.description, there and there.description),
    ]
    return [
        {
            "field": field,
            "published": "" if live is None else ours,
            "cluster": "" if there is None else theirs,
            "differs": live is not None and there is not None and ours != theirs,
        }
        for field, ours, theirs in sides
    ]


def _yes(value: bool) -> str:  # noqa: FBT001 - a word for it
    return "true" if value else "false"


def _ways(request: HttpRequest, name: str, *, is_made_here: bool) -> list[tuple[str, str]]:
    """Return the links from a class: to its form, for users who may edit it, and to the list."""
    form = edit_url_for(request, "PriorityClass", name) if is_made_here else ""
    return [*([("Edit", form)] if form else []), ("All classes", reverse("admin:policies_priorityclass_changelist"))]


def _acts(name: str, live: engine.PriorityClass | None, found: ClusterPriorityClass | None) -> list[tuple[str, str]]:
    """Return the acts that are available for a class, each with its page."""
    acts = []
    if live is not None and found is not None and found.state in publishing.PUT_BACK_STATES:
        text = "Try again" if found.state == _State.REFUSED else "Put back what is published"
        acts.append((text, reverse("cluster_priority_class_put_back", args=[quote(name)])))
    if _may_be_adopted(live, found):
        text = "Take over" if live is None else "Publish what the cluster has"
        acts.append((text, f"{reverse('cluster_priority_classes_adopt')}?{urlencode({'name': name})}"))
    return acts


def _may_be_adopted(live: engine.PriorityClass | None, found: ClusterPriorityClass | None) -> bool:
    if found is None or not found.present or found.state == _State.SYSTEM:
        return False
    return live is None or found.state in {_State.DRIFTED, _State.FOREIGN, _State.CONFLICT}


def _version(version: PriorityClassVersion, *, may_go_back: bool) -> dict[str, Any]:
    is_live = version.state == PriorityClassVersion.State.PUBLISHED
    return {
        "row": version,
        "sentence": version_sentence(version),
        "revision_url": revision_url(version.revision),
        "go_back": ""
        if is_live or not may_go_back
        else reverse("cluster_priority_class_go_back", args=[quote(version.name), version.number]),
    }


def _users(request: HttpRequest, name: str, found: ClusterPriorityClass | None) -> dict[str, Any]:
    """Return the users of a class, one page of them, first those whose Pods have another number than new Pods get."""
    users = PriorityClassUser.objects.filter(priority_class=name)
    workloads = users.order_by("namespace", "kind", "name", "priority")
    former = users.exclude(priority=found.value) if found is not None and found.present else users.none()
    namespaces = users.values("namespace").annotate(pods=Sum("pods")).order_by("-pods", "namespace")
    return {
        "users": _linked(Paginator(workloads, _PER_PAGE).get_page(request.GET.get("p"))),
        "namespaces": namespaces[:_PER_PAGE],
        "more_namespaces": max(namespaces.count() - _PER_PAGE, 0),
        "users_sentence": publishing.users_sentence(name),
        "former": _linked(
            Paginator(former.order_by("namespace", "kind", "name", "priority"), _PER_PAGE).get_page(
                request.GET.get("f")
            )
        ),
        "former_pods": former.aggregate(pods=Sum("pods"))["pods"] or 0,
    }


def _linked(users: Page[PriorityClassUser]) -> Page[PriorityClassUser]:
    """Add to each row the URL of its workload's page; a Pod without owner has its story."""
    for each in users:
        is_pod = each.kind == "Pod"
        url = pod_url(each.namespace, each.name) if is_pod else workload_url(each.namespace, each.kind, each.name)
        vars(each)["url"] = url
    return users


@admin.site.admin_view
@permission_required(PUBLISH, raise_exception=True)
def put_back(request: HttpRequest, name: str) -> HttpResponse:
    """Show the differences, and make the cluster's class match the published one."""
    name = unquote(name)

    def look() -> Confirmation:
        # Before what is shown: the digest may be older, never newer.
        digest = publishing.digest_of_putting_back(name)
        found = get_object_or_404(ClusterPriorityClass, pk=name)
        return Confirmation(
            title=f"Put {name} back",
            effect=f"Overwrites the cluster's {name} with the published version. No Revision is made; Pods keep their priority.",
            button="Put back",
            back=_url(name),
            changes=[found.message] if found.message else [],
            faults=publishing.faults_of_putting_back(found),
            digest=digest,
            danger=True,
        )

    def act(reason: str, digest: str) -> None:
        publishing.put_back(name=name, by=person(request), reason=reason, expected_digest=digest)

    return _confirm(request, look, act, done=f"{name} will be put back within a few seconds.")


@admin.site.admin_view
@permission_required(PUBLISH, raise_exception=True)
def go_back(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show what an older version would change, and make it live again."""
    name = unquote(name)
    version = get_object_or_404(PriorityClassVersion, name=name, number=number)
    return confirm_going_back(_pages(), request, version, _url(name))


@admin.site.admin_view
@permission_required(PUBLISH, raise_exception=True)
def adopt(request: HttpRequest) -> HttpResponse:
    """Show what adopting classes of the cluster would publish, one or all of them, and publish it."""
    named = [name for name in request.GET.getlist("name") if name]
    names = named or publishing.adoptable()

    def look() -> Confirmation:
        live = publishing.live_priority_classes()
        confirmation = Confirmation(
            title=f"Take over {names[0]}" if len(names) == 1 else "Take over PriorityClasses of the cluster",
            effect=(
                f"Makes Revision {publishing.current_revision().number + 1} with the cluster's classes. Berth then manages them, "
                "and never deletes one that it didn't create."
            ),
            button="Take over",
            back=_url(named[0]) if len(named) == 1 else reverse("admin:policies_priorityclass_changelist"),
        )
        try:
            wanted = [publishing.adopted(name, live.get(name)) for name in names]
        except publishing.PublishingError as error:
            confirmation.faults = error.messages
            return confirmation
        confirmation.changes = [line for each in wanted for line in part_changes(live.get(each.name), each)]
        confirmation.edits = [publishing.Edit.of(each) for each in wanted]
        confirmation.is_gated = publishing.needs_gate(confirmation.edits)
        confirmation.digest = publishing.digest_of_shown(wanted, [live.get(name) for name in names])
        if not wanted:
            confirmation.faults = [
                "There is none to take over: each class of the cluster is published here or Kubernetes' own."
            ]
        return confirmation

    return _confirm(
        request,
        look,
        lambda reason, digest: publishing.adopt(names=names, by=person(request), reason=reason, expected_digest=digest),
        propose=lambda reason, digest: publishing.propose_adoption(
            names=names, by=person(request), reason=reason, expected_digest=digest
        ),
    )


def _confirm(request: HttpRequest, look: Callable[[], Confirmation], act: Any, **more: Any) -> HttpResponse:
    return confirm(_pages(), request, look, act, **more)


def _pages() -> Any:
    return admin.site.get_model_admin(PriorityClass)


def _url(name: str) -> str:
    return reverse("cluster_priority_class", args=[quote(name)])
