"""Paths of the pages that aren't about one kind of row, below /admin/scheduler/doctor/."""

from django.urls import path

from scheduler.admin import doctor

urlpatterns = [
    path("", doctor.wiring, name="doctor"),
    path("canary/", doctor.canary, name="doctor_canary"),
    path("configuration/", doctor.configuration, name="doctor_configuration"),
    path("lint/", doctor.lint_page, name="doctor_lint"),
]
