"""Paths of the REST API over what operators decide."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from policies.api import views

router = SimpleRouter(trailing_slash=False)
router.register("rule-sets", views.RuleSetViewSet, basename="rule-set")
router.register("assignments", views.AssignmentViewSet, basename="assignment")
router.register("priority-classes", views.PriorityClassViewSet, basename="priority-class")
router.register("events", views.AuditEventViewSet, basename="event")
router.register("revisions", views.RevisionViewSet, basename="revision")

urlpatterns = [*router.urls, path("validate", views.ValidateView.as_view(), name="validate")]
