"""The path of the queue's page, /admin/scheduler/queue/."""

from django.urls import path

from scheduler.admin import queue

urlpatterns = [path("", queue.page, name="queue")]
