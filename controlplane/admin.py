"""Accounts and roles on Unfold's pages."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from policies.admin.frame import ModelAdmin

# As the menu and the log call them. Migrations don't know of it: they go by what Django declares.
for model, word in ((User, "account"), (Group, "role")):
    options: Any = model._meta  # noqa: SLF001 - Django's documented API
    options.verbose_name, options.verbose_name_plural = word, f"{word}s"

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]  # not generic when it runs
    """The pages of accounts."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "roles", "is_active", "last_login")
    list_filter = ("groups", "is_active")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Bring along the roles of each."""
        found: QuerySet[User] = super().get_queryset(request)
        return found.prefetch_related("groups")

    @transaction.atomic
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002 - Django's name
        """Set a password together with its AuditEvent."""
        return super().user_change_password(request, id, form_url)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: the log of what was done names accounts. One that is no longer used is made inactive."""
        return False

    @admin.display(description="Roles")
    def roles(self, row: User) -> str:
        """Return the roles by name."""
        names = [group.name for group in row.groups.all()]
        return ", ".join((["superuser"] if row.is_superuser else []) + names) or "none"


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """The pages of roles."""
