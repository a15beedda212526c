"""Rows of every kind, what all of them say together, and a text put wherever a row takes one."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.db import Error, models, transaction

from controlplane.models import Session
from policies.models import ChangeEdit
from tests.builders import TEAM_FILTER, make_assignment, make_priority_class, make_rule_set
from tests.component.controlplane.test_pages import make_decision, make_process
from tests.component.pages import opened, publish, publish_all

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
# What a visit changes by itself.
_OF_A_VISIT = (Session,)


def make_rows() -> None:
    """Make a row of every model of ours, an open Change, and an account that nobody uses."""
    publish(make_rule_set(filters=[TEAM_FILTER]))
    publish_all(make_assignment())
    publish_all(make_priority_class())
    opened(make_rule_set("of-a-change", filters=[TEAM_FILTER]), title="somebody's")
    make_decision()
    make_process()
    User.objects.create(username="somebody-else", email="somebody-else@example.org")
    for model in ours():
        if not model._default_manager.exists():
            _make_any(model)


def ours() -> list[type[models.Model]]:
    return [model for app in ("policies", "scheduler") for model in apps.get_app_config(app).get_models()]


def _make_any(model: type[models.Model]) -> None:
    fields = [field for field in model._meta.concrete_fields if not field.has_default() and not field.null]
    made = {field.attname: _any(field) for field in fields if not isinstance(field, models.AutoField)}
    try:
        with transaction.atomic():
            model._default_manager.create(**made)
    except Error:
        pass  # it needs more than values; pages show it empty


def _any(field: Any) -> Any:
    if isinstance(field, models.ForeignKey):
        return field.related_model._default_manager.values_list("pk", flat=True).first()
    kinds: list[tuple[Any, Any]] = [
        (models.DateTimeField, _NOW),
        (models.BinaryField, b"x"),
        (models.BooleanField, False),
    ]
    kinds += [(models.IntegerField, 1), (models.FloatField, 1.0), (models.JSONField, {})]
    return next((value for kind, value in kinds if isinstance(field, kind)), "x")


def put_everywhere(text: str) -> set[str]:
    """Write a text into every field of every row that takes it; returns their names. Frozen rows refuse, as they should."""
    taken = set()
    for model in [*ours(), User]:
        for field in model._meta.concrete_fields:
            if not isinstance(field, models.CharField | models.TextField) or field.primary_key or field.choices:
                continue
            if model is User and field.name in {"username", "password"}:
                continue
            if model is ChangeEdit and field.name == "document":
                # Canonical JSON that Berth alone writes: what people write is within it.
                taken |= {f"ChangeEdit.document.{name}" for name in _put_into_documents(text)}
                continue
            room = field.max_length or len(text)
            try:
                with transaction.atomic():
                    if len(text) <= room and model._default_manager.update(**{field.name: text}):
                        taken.add(f"{model.__name__}.{field.name}")
            except Error:
                continue
    return taken


def _put_into_documents(text: str) -> set[str]:
    found = set()
    for edit in ChangeEdit.objects.exclude(document=""):
        document = json.loads(edit.document) | {"description": text}
        ChangeEdit.objects.filter(pk=edit.pk).update(document=json.dumps(document))
        found.add("description")
    return found


def state() -> str:
    """Return a digest of every row, but for what a visit changes by itself."""
    total = hashlib.sha256()
    for model in apps.get_models():
        if model in _OF_A_VISIT:
            continue
        names = [field.attname for field in model._meta.concrete_fields if field.name != "last_login"]
        for row in model._default_manager.order_by("pk").values_list(*names):
            total.update(repr([bytes(value) if isinstance(value, memoryview) else value for value in row]).encode())
    return total.hexdigest()
