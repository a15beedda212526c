"""Paths of the pages that aren't about one kind of row, below /admin/scheduler/."""

from django.urls import path

from scheduler.admin import doctor, queue, shadows

urlpatterns = [
    path("doctor/", doctor.wiring, name="doctor"),
    path("doctor/canary/", doctor.canary, name="doctor_canary"),
    path("doctor/configuration/", doctor.configuration, name="doctor_configuration"),
    path("doctor/lint/", doctor.lint_page, name="doctor_lint"),
    path("queue/", queue.page, name="queue"),
    path("shadows/", shadows.page, name="shadows"),
]
