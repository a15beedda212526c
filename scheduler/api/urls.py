"""Paths of the REST API over what happened to Pods."""

from rest_framework.routers import SimpleRouter

from scheduler.api.views import DecisionViewSet, QueueViewSet, ShadowViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("decisions", DecisionViewSet, basename="decision")
router.register("shadows", ShadowViewSet, basename="shadow")
router.register("scheduler/queue", QueueViewSet, basename="queue")

urlpatterns = router.urls
