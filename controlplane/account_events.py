"""Records what happens to accounts and roles, whether by pages, commands or a provider's claims."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_save, pre_delete, pre_save
from django.utils.crypto import salted_hmac

from policies.models.audit import Kind as AuditKind
from policies.models.audit import digest_of
from policies.origin import current_origin, system_user

# The fields of an account that are recorded with their values. For names and e-mail addresses only the fact of a change is recorded,
# since events are kept for ever.
_TOLD = ("username", "is_active", "is_staff", "is_superuser")
_FIELDS = (*_TOLD, "email", "first_name", "last_name")
_NEITHER = frozenset({"last_login"})
_FORMER = "_berth_former"
_SENTENCES = {"post_add": "added", "post_remove": "removed", "post_clear": "removed"}


_is_recorded: ContextVar[bool] = ContextVar("is_recorded", default=True)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Record nothing that a migration does: it follows from the version, and the table may not exist yet."""
    token = _is_recorded.set(False)
    try:
        yield
    finally:
        _is_recorded.reset(token)


def watch() -> None:
    """Record AuditEvents from now on, each in the transaction of its act."""
    # Django's commands changepassword and createsuperuser save without a transaction; one around them would span a prompt.
    for model in (User, Group):
        model.save = transaction.atomic(savepoint=False)(model.save)  # type: ignore[method-assign]
    pre_save.connect(_remember, sender=User)
    post_save.connect(_account_saved, sender=User)
    pre_delete.connect(_account_deleted, sender=User)
    pre_save.connect(_remember_role, sender=Group)
    post_save.connect(_role_saved, sender=Group)
    # Before the deletion: afterwards the database no longer says who held the role.
    pre_delete.connect(_role_deleted, sender=Group)
    m2m_changed.connect(_roles_given, sender=User.groups.through)
    m2m_changed.connect(_permissions_given, sender=User.user_permissions.through)
    m2m_changed.connect(_permissions_given, sender=Group.permissions.through)


def actor() -> str:
    """Return who does it: the user of the request, else the command's user."""
    origin = current_origin()
    return origin.person() if origin.door else system_user()


def _record(kind: AuditKind, **said: Any) -> None:
    if _is_recorded.get():
        record_event(kind, by=actor(), **said)


def record_event(kind: AuditKind, **said: Any) -> None:
    """Record an AuditEvent, as `publishing` does."""
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
        _record(AuditKind.ACCOUNT_MAKE, thing=thing, digests=("", _keyed(after)))
        return
    former = vars(instance).pop(_FORMER, None) or {}
    changed = [name for name in _FIELDS if (not fields or name in fields) and former.get(name) != after[name]]
    if changed:
        told = {name: [former.get(name), after[name]] for name in changed if name in _TOLD}
        before = _keyed({name: former.get(name) for name in _FIELDS})
        _record(
            AuditKind.ACCOUNT_CHANGE,
            thing=thing,
            digests=(before, _keyed(after)),
            more={"changed": changed, "values": told},
        )
    # At log-in Django may save a new hash with more rounds: only that field is saved, and nobody has set a password.
    made_anew = fields == {"password"} and vars(instance).get("_password") is None and instance.has_usable_password()
    if former.get("password") != instance.password and not made_anew:
        _record(AuditKind.ACCOUNT_PASSWORD, thing=thing)


def _keyed(fields: dict[str, Any]) -> str:
    """Return a digest of an account with Berth's key: by one without a key, every reader could try e-mail addresses."""
    return salted_hmac("berth accounts", digest_of(fields), algorithm="sha256").hexdigest()


def _account_deleted(instance: User, **_: Any) -> None:
    before = _keyed({name: getattr(instance, name) for name in _FIELDS})
    _record(AuditKind.ACCOUNT_DELETE, thing=("Account", instance.get_username()), digests=(before, ""))


def _remember_role(*, instance: Group, raw: bool = False, **_: Any) -> None:
    if not raw and instance.pk:
        setattr(instance, _FORMER, Group.objects.filter(pk=instance.pk).values_list("name", flat=True).first())


def _role_saved(*, instance: Group, created: bool, raw: bool = False, **_: Any) -> None:
    if raw:
        return
    thing, former = ("Role", instance.name), vars(instance).pop(_FORMER, None) or ""
    if created:
        _record(AuditKind.ROLE_MAKE, thing=thing, digests=("", digest_of(instance.name)))
    elif former != instance.name:
        _record(
            AuditKind.ROLE_CHANGE,
            thing=thing,
            digests=(digest_of(former), digest_of(instance.name)),
            more={"changed": ["name"], "values": {"name": [former, instance.name]}},
        )


def _role_deleted(instance: Group, **_: Any) -> None:
    members = sorted(instance.user_set.values_list("username", flat=True))
    _record(
        AuditKind.ROLE_DELETE,
        thing=("Role", instance.name),
        digests=(digest_of(instance.name), ""),
        more={"members": members},
    )


def _roles_given(*, instance: Any, action: str, reverse: bool, pk_set: Any = None, **_: Any) -> None:
    """Record who got or lost a role, whether it was changed on the account or on the role."""
    if not reverse:
        _note_given(instance, action, instance.groups, "name", pk_set, "roles")
        return
    if action == "pre_clear":
        setattr(instance, _FORMER, set(instance.user_set.values_list("pk", flat=True)))
    elif action in _SENTENCES:
        pks = vars(instance).pop(_FORMER, ()) if action == "post_clear" else pk_set
        for user in User.objects.filter(pk__in=pks or ()):
            _given(user, action, {instance.name}, _names(user.groups, "name"), "roles")


def _permissions_given(*, instance: Any, action: str, reverse: bool, pk_set: Any = None, **_: Any) -> None:
    if not reverse:
        held = instance.user_permissions if isinstance(instance, User) else instance.permissions
        _note_given(instance, action, held, "codename", pk_set, "permissions")


def _note_given(holder: Model, action: str, held: Any, field: str, pk_set: Any, what: str) -> None:
    """Record which members of `held`, all that the holder now has, are new, and which were removed."""
    if action == "pre_clear":
        setattr(holder, _FORMER, _names(held, field))
    elif action == "post_clear":
        _given(holder, action, vars(holder).pop(_FORMER, set()), set(), what)
    elif action in _SENTENCES:
        _given(holder, action, _names(held.model.objects.filter(pk__in=pk_set or ()), field), _names(held, field), what)


def _names(rows: Any, field: str) -> set[str]:
    return set(rows.values_list(field, flat=True))


def _given(holder: Model, action: str, names: set[str], now: set[str], what: str) -> None:
    """Record what an account or a role was given or lost, and all that it has now."""
    if not names:
        return
    is_account, word = isinstance(holder, User), _SENTENCES[action]
    before = now - names if word == "added" else now | names
    _record(
        AuditKind.ACCOUNT_CHANGE if is_account else AuditKind.ROLE_CHANGE,
        thing=("Account" if is_account else "Role", str(holder)),
        digests=(digest_of(sorted(before)), digest_of(sorted(now))),
        more={word: sorted(names), "of": what},
    )
