"""What Berth's commands have in common."""

from django.core.checks import Tags
from django.core.management.base import BaseCommand


class BerthCommand(BaseCommand):
    """A command of Berth's. Of Django's checks it runs those of the environment.

    The others look at the code and load every page for it: `manage.py check` and `migrate` run them.
    """

    requires_system_checks = (Tags.security,)
