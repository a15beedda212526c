"""Paths of the REST API for Changes, Revisions, AuditEvents, Pauses and Exemptions."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from policies.api import views
from policies.api.changes import ChangeViewSet, DiscardEditView, PutEditView
from policies.api.documents import KINDS
from policies.api.pauses import ExemptionsView, ExemptionView, PausesView, PauseView
from policies.api.whoami import WhoamiView

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("changes", ChangeViewSet, basename="change")
router.register("events", views.AuditEventViewSet, basename="event")
router.register("revisions", views.RevisionViewSet, basename="revision")

_EDITS = [
    path(f"changes/<int:number>/{segment}/<str:name>{rest}", view.as_view(kind=kind), name=f"change-{segment}{named}")
    for segment, kind in KINDS.items()
    for view, rest, named in ((PutEditView, "", ""), (DiscardEditView, "/discard", "-discard"))
]

_PAUSES = [
    path("pauses", PausesView.as_view(), name="pauses_api"),
    path("pauses/<path:target>", PauseView.as_view(), name="pause_api"),
    path("exemptions", ExemptionsView.as_view(), name="exemptions"),
    path("exemptions/<str:name>", ExemptionView.as_view(), name="exemption"),
]

urlpatterns = [
    *router.urls,
    *_EDITS,
    *_PAUSES,
    path("validate", views.ValidateView.as_view(), name="validate"),
    path("whoami", WhoamiView.as_view(), name="whoami"),
]
