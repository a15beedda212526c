"""`migrate`: Django's, whose --check says what is missing: new Pods wait by it, and their log is where people look."""

import sys
from typing import Any

from django.core.management.commands import migrate

from controlplane.health import missing_migrations


class Command(migrate.Command):
    """Brings the tables of the database to this version; --check only says whether they are."""

    def handle(self, *arguments: Any, **options: Any) -> None:
        """Do as Django does; where --check finds something missing, say so in place of ending with 1 and no word."""
        if options["check_unapplied"] and not options["app_label"] and (missing := missing_migrations()):
            sys.exit(f"manage.py: {missing}")
        super().handle(*arguments, **options)
