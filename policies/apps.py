"""The app of what operators decide."""

from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    """Rule sets, Assignments and Revisions."""

    name = "policies"
    verbose_name = "Policies"
