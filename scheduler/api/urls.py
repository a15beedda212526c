"""Paths of the REST API over what happened to Pods."""

from rest_framework.routers import SimpleRouter

from scheduler.api.views import DecisionViewSet, QueueViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("decisions", DecisionViewSet, basename="decision")
router.register("scheduler/queue", QueueViewSet, basename="queue")

urlpatterns = router.urls
