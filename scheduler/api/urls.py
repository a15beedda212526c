"""Paths of the REST API for documents, Decisions, Pods and the scheduler."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from scheduler.api.applying import ApplyView, LintView, PlanView
from scheduler.api.backtests import BacktestViewSet
from scheduler.api.canaries import CanaryViewSet
from scheduler.api.pending import PendingView
from scheduler.api.scenario import ScenarioView
from scheduler.api.status import ExportView, StatusView
from scheduler.api.stories import StoryView
from scheduler.api.things import AssignmentDoor, PriorityClassDoor, RuleSetDoor
from scheduler.api.views import DecisionViewSet, QueueViewSet, ShadowViewSet
from scheduler.api.which import WhichView

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("rule-sets", RuleSetDoor, basename="rule-set")
router.register("assignments", AssignmentDoor, basename="assignment")
router.register("priority-classes", PriorityClassDoor, basename="priority-class")
router.register("canary-pods", CanaryViewSet, basename="canary-pod")
router.register("decisions", DecisionViewSet, basename="decision")
router.register("backtests", BacktestViewSet, basename="backtest")
router.register("shadows", ShadowViewSet, basename="shadow")
router.register("scheduler/queue", QueueViewSet, basename="queue")

_assignment = AssignmentDoor.as_view({"get": "retrieve", "put": "update", "delete": "destroy"})

urlpatterns = [
    # First: the router would read `which` as the name of an Assignment, which it may be, too.
    path("assignments/which", WhichView.as_view(named=_assignment), name="assignment-which"),
    *router.urls,
    path("scenario", ScenarioView.as_view(), name="scenario_api"),
    path("lint", LintView.as_view(), name="lint"),
    path("changes/apply", ApplyView.as_view(), name="apply"),
    path("changes/plan", PlanView.as_view(), name="plan"),
    path("export", ExportView.as_view(), name="export"),
    path("status", StatusView.as_view(), name="status"),
    path("pending", PendingView.as_view(), name="pending-pods"),
    path("pods/<str:namespace>/<str:name>", StoryView.as_view(), name="pod-story"),
]
