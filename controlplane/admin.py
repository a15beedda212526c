"""Accounts and roles on Unfold's pages."""

import hashlib
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.forms import UserChangeForm, UserCreationForm

from controlplane.sign_in_form import PasswordForm
from policies.admin.frame import ModelAdmin, ModelForm
from policies.publishing import locks
from policies.publishing.locks import Lock

# The fieldset of a hidden field.
_SEEN = (None, {"fields": ("seen",)})
# What a new account is made of.
_NEW = ("username", "usable_password", "password1", "password2")
# What an account needs to give roles to others.
_SUPERUSER = ("is_superuser", "is_staff", "is_active")
# How many of the accounts that lose a role are named.
_MOST_NAMED = 20

# The names in the menu and the log. Migrations aren't affected: they use Django's declarations.
for model, word in ((User, "account"), (Group, "role")):
    options: Any = model._meta  # noqa: SLF001 - Django's documented API
    options.verbose_name, options.verbose_name_plural = word, f"{word}s"

admin.site.unregister(User)
admin.site.unregister(Group)


class _Seen(ModelForm):
    """A form that knows what was shown: what somebody else saved meanwhile isn't undone by the fields that still show it."""

    # It has a page of its own, and no field here.
    _OURS = frozenset({"password"})
    seen = forms.CharField(label="", required=False, widget=forms.HiddenInput)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.instance.pk:
            # Of the values that the form shows: read again, they may be newer.
            self._now = self._shown()
            self.initial["seen"] = self._now

    def clean(self) -> dict[str, Any]:
        """Refuse what was typed into a page that is no longer true."""
        cleaned: dict[str, Any] = super().clean() or {}
        # A request without it has seen no state.
        if self.instance.pk and cleaned.get("seen") != self._now:
            message = "Somebody else saved this page since you opened it. Open it again, and make your changes there."
            raise forms.ValidationError(message)
        return cleaned

    def _shown(self) -> str:
        said = [(name, _keys(value)) for name, value in sorted(self.initial.items()) if name not in self._OURS]
        return hashlib.sha256(repr(said).encode()).hexdigest()


def _keys(value: Any) -> Any:
    return sorted(row.pk for row in value) if isinstance(value, list) else value


class _SavedOneByOne(ModelAdmin):
    """Pages whose row is locked while it is saved: of two saves at once, the second is compared with what the first one left."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row."""
        found = super().get_object(request, object_id, from_field)
        if found is None or request.method != "POST" or not transaction.get_connection().in_atomic_block:
            return found
        self.model.objects.select_for_update(no_key=True).filter(pk=found.pk).first()
        return super().get_object(request, object_id, from_field)


class _AccountForm(_Seen, UserChangeForm):  # type: ignore[misc] # Unfold has no types
    """An account."""

    def clean(self) -> dict[str, Any]:
        """Refuse to leave nobody who gives roles: only a command could make another."""
        cleaned = super().clean()
        was_superuser = all(self.initial.get(name) for name in _SUPERUSER)
        if was_superuser and (lost := [name for name in _SUPERUSER if not cleaned.get(name)]):
            # Until this page is saved: of two superusers who lose their rights at once, the second would count the first.
            locks.take(Lock.SUPERUSERS)
            superusers = User.objects.filter(**dict.fromkeys(_SUPERUSER, True))
            if list(superusers.values_list("pk", flat=True)[:2]) == [self.instance.pk]:
                self.add_error(lost[0], "This is the only superuser who may sign in. Make another one first.")
        return cleaned


class _RoleForm(_Seen):
    """A role."""


class RoleFilter(admin.RelatedFieldListFilter):
    """Filters accounts by a role, with the title of their column."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.title = "roles"


@admin.register(User)
class UserAdmin(DjangoUserAdmin, _SavedOneByOne):  # type: ignore[type-arg]  # not generic when it runs
    """The pages of accounts."""

    form = _AccountForm
    add_form = UserCreationForm
    change_password_form = PasswordForm
    list_display = ("username", "email", "roles", "is_active", "last_login")
    list_filter = (("groups", RoleFilter), "is_active")
    # Records, which Berth writes: a field would put back the sign-in before the one that came while the page was open.
    readonly_fields = ("last_login", "date_joined")
    # A new account gets its roles at once: without Django's template, which refers to a second page for them.
    add_fieldsets = ((None, {"classes": ("wide",), "fields": (*_NEW, "groups")}),)
    add_form_template = None
    # Labels in place of Django's, which are for any site.
    _WORDS = {
        "is_staff": (
            "May sign in",
            "An account that may not is told the same as one with another password. Its sessions end, its tokens don't.",
        ),
        "groups": ("Roles", "What the account may do is what its roles let it do. Without a role it sees nothing."),
        "user_permissions": ("Rights of its own", "On top of those of its roles. Hardly any account needs one."),
    }
    # What the lists to choose from are of.
    _CHOSEN = {"groups": "roles", "user_permissions": "rights"}

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Add what the page shows, hidden."""
        found = super().get_fieldsets(request, obj)
        return [*found, _SEEN] if obj and self.has_change_permission(request, obj) else found

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Prefetch the roles of each account."""
        found: QuerySet[User] = super().get_queryset(request)
        return found.prefetch_related("groups")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Return a field, with the label that the other pages use."""
        field = super().formfield_for_dbfield(db_field, request, **options)
        if field is not None and db_field.name in self._WORDS:
            field.label, field.help_text = self._WORDS[db_field.name]
        return field

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Return a field whose lists are named as the other pages name what is in them."""
        field = super().formfield_for_manytomany(db_field, request, **options)
        if field is not None:
            field.widget.verbose_name = self._CHOSEN.get(db_field.name, field.widget.verbose_name)
        return field

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: Any) -> None:
        """Let a new account sign in, which is its only purpose; without a role it sees nothing."""
        obj.is_staff = obj.is_staff or not change
        super().save_model(request, obj, form, change)

    @transaction.atomic
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002 - Django's name
        """Set a password together with its AuditEvent."""
        return super().user_change_password(request, id, form_url)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: the log names accounts. An account that is no longer used is made inactive."""
        return False

    @admin.display(description="Roles")
    def roles(self, row: User) -> str:
        """Return the roles by name."""
        names = [group.name for group in row.groups.all()]
        return ", ".join((["superuser"] if row.is_superuser else []) + names) or "none"


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, _SavedOneByOne):
    """The pages of roles."""

    form = _RoleForm

    def get_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        """Leave out what only a form has, for those who only read."""
        found = super().get_fields(request, obj)
        return found if self.has_change_permission(request, obj) else [name for name in found if name != "seen"]

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the accounts that lose the role, in place of each row that joins it to a permission."""
        _rows, _counts, lacking, protected = super().get_deleted_objects(objs, request)
        lines = []
        for role in objs:
            names = list(role.user_set.order_by("username").values_list("username", flat=True))
            more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
            loses = f"taken from {', '.join([*names[:_MOST_NAMED], *more])}" if names else "which nobody has"
            lines.append(f"Role {role.name}, {loses}")
        return lines, {"roles": len(lines)}, lacking, protected
