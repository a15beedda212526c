"""What becomes of accounts and roles is written down, by whichever door: pages, commands, a provider's claims."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from policies.models.audit import Kind as AuditKind
from policies.models.audit import digest_of
from policies.origin import current_origin

# What is said of an account with its value; of names and e-mail addresses only that they changed: events are kept for good.
_TOLD = ("username", "is_active", "is_staff", "is_superuser")
_FIELDS = (*_TOLD, "email", "first_name", "last_name")
_NEITHER = frozenset({"last_login"})
_FORMER = "_berth_former"
_SENTENCES = {"post_add": "added", "post_remove": "removed", "post_clear": "removed"}


_is_recorded: ContextVar[bool] = ContextVar("is_recorded", default=True)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Write nothing down of what a migration does: it follows from the version, and the table may not be there yet."""
    token = _is_recorded.set(False)
    try:
        yield
    finally:
        _is_recorded.reset(token)


def watch() -> None:
    """Write AuditEvents from now on, each in the transaction of its act."""
    # Django's own commands, changepassword and createsuperuser, save without one, and ask for passwords where it could begin.
    for model in (User, Group):
        model.save = transaction.atomic(savepoint=False)(model.save)  # type: ignore[method-assign]
    pre_save.connect(_remember, sender=User)
    post_save.connect(_account_saved, sender=User)
    post_delete.connect(_account_deleted, sender=User)
    post_save.connect(_role_saved, sender=Group)
    post_delete.connect(_role_deleted, sender=Group)
    m2m_changed.connect(_roles_given, sender=User.groups.through)
    m2m_changed.connect(_permissions_given, sender=User.user_permissions.through)
    m2m_changed.connect(_permissions_given, sender=Group.permissions.through)


def _who() -> str:
    """Return who does it: who asks for a page, else the command's user."""
    origin = current_origin()
    return origin.person() if origin.door else getpass.getuser()


def _record(kind: AuditKind, **said: Any) -> None:
    if _is_recorded.get():
        record_event(kind, by=_who(), **said)


def record_event(kind: AuditKind, **said: Any) -> None:
    """Write an AuditEvent down, as `publishing` does it."""
    # Imported here: every process connects these signals, and few write an event; publishing loads the engine and numpy.
    from policies import publishing

    publishing.record_event(kind, **said)


def _remember(*, instance: User, update_fields: Any = None, raw: bool = False, **_: Any) -> None:
    if not raw and instance.pk and set(update_fields or ()) != _NEITHER:
        setattr(instance, _FORMER, User.objects.filter(pk=instance.pk).values(*_FIELDS, "password").first())


def _account_saved(*, instance: User, created: bool, update_fields: Any = None, raw: bool = False, **_: Any) -> None:
    fields = set(update_fields or ())
    if raw or fields == _NEITHER:
        return
    thing, after = ("Account", instance.get_username()), {name: getattr(instance, name) for name in _FIELDS}
    if created:
        _record(AuditKind.ACCOUNT_MAKE, thing=thing, digests=("", digest_of(after)))
        return
    former = vars(instance).pop(_FORMER, None) or {}
    changed = [name for name in _FIELDS if former.get(name) != after[name]]
    if changed:
        told = {name: [former.get(name), after[name]] for name in changed if name in _TOLD}
        before = digest_of({name: former.get(name) for name in _FIELDS})
        _record(
            AuditKind.ACCOUNT_CHANGE,
            thing=thing,
            digests=(before, digest_of(after)),
            more={"changed": changed, "values": told},
        )
    # A hash that is made anew at log-in, with more rounds, is saved alone, and without anybody having set a password.
    made_anew = fields == {"password"} and vars(instance).get("_password") is None
    if former.get("password") != instance.password and not made_anew:
        _record(AuditKind.ACCOUNT_PASSWORD, thing=thing)


def _account_deleted(instance: User, **_: Any) -> None:
    _record(AuditKind.ACCOUNT_DELETE, thing=("Account", instance.get_username()))


def _role_saved(*, instance: Group, created: bool, raw: bool = False, **_: Any) -> None:
    if not raw:
        kind = AuditKind.ROLE_MAKE if created else AuditKind.ROLE_CHANGE
        _record(kind, thing=("Role", instance.name), digests=("", digest_of(instance.name)))


def _role_deleted(instance: Group, **_: Any) -> None:
    _record(AuditKind.ROLE_DELETE, thing=("Role", instance.name))


def _roles_given(*, instance: Any, action: str, reverse: bool, pk_set: Any = None, **_: Any) -> None:
    """Write down who got or lost a role: from the account's side, or from the role's."""
    if action not in _SENTENCES or not _any(action, pk_set):
        return
    if not reverse:
        _given(
            instance, action, list(Group.objects.filter(pk__in=pk_set or ()).values_list("name", flat=True)), "roles"
        )
        return
    for user in User.objects.filter(pk__in=pk_set or ()):
        _given(user, action, [instance.name], "roles")


def _permissions_given(*, instance: Any, action: str, reverse: bool, pk_set: Any = None, **_: Any) -> None:
    if action in _SENTENCES and not reverse and _any(action, pk_set):
        names = Permission.objects.filter(pk__in=pk_set or ()).values_list("codename", flat=True)
        _given(instance, action, sorted(names), "permissions")


def _any(action: str, pk_set: Any) -> bool:
    return bool(pk_set) or action == "post_clear"


def _given(holder: Model, action: str, names: list[str], what: str) -> None:
    """Write down what an account or a role was given, or what was taken from it; all of it where nothing is named."""
    is_account = isinstance(holder, User)
    _record(
        AuditKind.ACCOUNT_CHANGE if is_account else AuditKind.ROLE_CHANGE,
        thing=("Account" if is_account else "Role", str(holder)),
        more={_SENTENCES[action]: sorted(names) or "all", "of": what},
    )
