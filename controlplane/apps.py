"""The project as an app: it creates the roles after every migration, and limits sessions of the database."""

from django.apps import AppConfig, apps
from django.conf import settings
from django.db.models.signals import post_migrate


class ControlplaneConfig(AppConfig):
    """Roles, home page and the site's wiring."""

    name = "controlplane"
    verbose_name = "Control plane"

    def ready(self) -> None:
        """Register the checks and the creation of roles, limit sessions of the database, and record changes of accounts."""
        from controlplane import checks, lost_clients, roles

        checks.register_all()
        lost_clients.watch_sessions()
        if apps.is_installed("django.contrib.admin") and not settings.SERVES_EXTENDER:
            from controlplane import account_events, accounts, doors

            accounts.watch()
            account_events.watch()
            doors.watch_statements()
        # The signal is sent only for apps with models; scheduler is the last one, when the permissions of all apps exist.
        post_migrate.connect(roles.make_roles, sender=apps.get_app_config("scheduler"))
