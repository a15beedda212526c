"""Plans the effect of documents, here and in the cluster: publishes them in a transaction that is rolled back."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from django.db import transaction

from policies import publishing
from policies.changes_in_words import revision_changes
from policies.engine.documents import document_of
from policies.engine.ruleset import PriorityClass, Revision
from policies.manifests import to_yaml
from policies.publishing import By
from policies.publishing.revisions import lock_revisions
from scheduler.applying.documents import Documents
from scheduler.cluster.client import connect
from scheduler.cluster.errors import APIError
from scheduler.priority_classes.execute import read_classes
from scheduler.priority_classes.plan import SENT, Act, Found, Step, plan
from scheduler.priority_classes.users import read_users

if TYPE_CHECKING:
    from scheduler.gate.forecast import Forecast

_SILENT = frozenset({Act.NOTHING, Act.SYSTEM, Act.KEEP})


class Planned(msgspec.Struct, omit_defaults=True):
    """The planned changes: of the Revision in sentences, of the cluster by class."""

    ok: bool
    # The number of the new Revision; 0 if there would be none.
    revision: int = 0
    changes: list[str] = []
    cluster: list[dict[str, str]] = []
    # The users of the classes that would be replaced.
    users: list[dict[str, Any]] = []
    # Why it is refused, or why the cluster can't be queried.
    error: str = ""
    # The results of the gate's checks, with its findings about Pods; and its reason against publishing.
    gate: list[publishing.Result] = []
    forecast: "Forecast | None" = None
    blocked: str = ""
    # The level of each check's result.
    levels: dict[str, str] = {}
    # Others' open edits of the same objects, and their changes since a repository's last import.
    beside: list[str] = []
    drift: list[str] = []
    # Notes for the user about the documents.
    notes: list[str] = []
    # Each object that would change, as YAML: the live version, and the new one.
    documents: list[dict[str, str]] = []

    @property
    def would_change(self) -> bool:
        """Whether anything would change, here or in the cluster."""
        return bool(self.revision) or any(told["act"] in SENT for told in self.cluster)


def plan_documents(
    documents: Documents,
    *,
    by: By,
    gate: bool = False,
    asks_cluster: bool = True,
    deciding_seconds: float | None = None,
) -> Planned:
    """Return what publishing these documents would change.

    Args:
        documents: those of the files.
        by: the account.
        gate: whether to run the gate, too.
        asks_cluster: whether to query the API server, for PriorityClasses if there are any, and for the gate.
        deciding_seconds: how long the gate decides on Pods; by default as long as in its own runs.

    Raises:
        PublishingError: publishing would refuse them.
    """
    keeper = documents.keeper
    publishing.check_owner_name(keeper.owner)
    brought = [edit.key for edit in documents.edits(publishing.current_revision())]
    publishing.check_owners(brought, keeper)
    before, after, withdrawn, edits = _publish_and_roll_back(documents, by)
    publishing.check_reach_of(edits, {}, by)
    # Without Berth's own classes there are no steps, and a query would load the API server's client first.
    concerns_cluster = asks_cluster and bool(after.priority_classes or withdrawn)
    found, fault = _read_cluster() if concerns_cluster else ([], "")
    steps = plan(after.priority_classes, found, withdrawn=withdrawn) if concerns_cluster and not fault else []
    planned = Planned(
        ok=True,
        revision=after.number if after.number != before.number else 0,
        changes=[*revision_changes(before, after), *publishing.past_ends(edits)],
        cluster=[_told(step) for step in steps if step.act not in _SILENT],
        error=fault,
        beside=publishing.beside([edit.key for edit in edits], keeper, brought),
        drift=publishing.drift_notes([edit.key for edit in edits], keeper.owner),
        notes=documents.notes(),
        documents=_documents(before, edits),
    )
    replaced = {step.name for step in steps if step.act is Act.REPLACE}
    if replaced:
        planned.users, planned.error = _users_of(replaced)
    if gate and planned.revision:
        _add_gate(planned, before, after, edits, asks_cluster=asks_cluster, deciding_seconds=deciding_seconds)
    return planned


def _add_gate(
    planned: Planned,
    before: Revision,
    after: Revision,
    edits: Sequence[publishing.Edit],
    *,
    asks_cluster: bool,
    deciding_seconds: float | None,
) -> None:
    """Add the gate's results, and whether they prevent publishing."""
    # Imported here and below: the gate loads the whole engine and the API server's client.
    from scheduler.gate.forecast import DECIDING_SECONDS
    from scheduler.gate.runs import examine

    planned.levels = publishing.levels_of(publishing.rule_sets_of(edits, before))
    client = connect if asks_cluster else None
    examined = examine(
        before, after, edits, planned.levels, client=client, deciding_seconds=deciding_seconds or DECIDING_SECONDS
    )
    planned.gate, planned.forecast = examined.results, examined.forecast
    planned.levels = publishing.with_found(planned.levels, examined.results)
    planned.blocked = publishing.blocked(examined.results, planned.levels)
    planned.ok = not planned.blocked


def _read_cluster() -> tuple[list[Found], str]:
    try:
        return read_classes(connect()), ""
    except APIError as error:
        return [], str(error)


def _users_of(names: Collection[str]) -> tuple[list[dict[str, Any]], str]:
    """Return the workloads whose Pods keep their present number, and why the list is incomplete."""
    try:
        counts, fault = read_users(connect())
    except APIError as error:
        return [], str(error)
    found = {key: count for key, count in sorted(counts.items()) if key.priority_class in names}
    return [{**msgspec.structs.asdict(key), "pods": count.pods} for key, count in found.items()], fault


def _publish_and_roll_back(
    documents: Documents, by: By
) -> tuple[Revision, Revision, list[PriorityClass], Sequence[publishing.Edit]]:
    """Return the live Revision, the planned one, the classes that it would withdraw, and the differences."""
    with transaction.atomic():
        # Locked as for publishing: otherwise a concurrent publish would take the same numbers.
        before = lock_revisions()
        edits = list(publishing.differing(documents.edits(before), before).values())
        # A plan needs no approvals: the Change that it names isn't stored.
        publishing.make_live(before, edits, by=by, reason="plan", authors={})
        after = publishing.current_revision()
        withdrawn = publishing.withdrawn_priority_classes()
        transaction.set_rollback(True)
    return before, after, withdrawn, edits


def _documents(before: Revision, edits: Iterable[publishing.Edit]) -> list[dict[str, str]]:
    values = publishing.values_of(before)
    return [
        {"kind": str(edit.kind), "name": edit.name, "live": _yaml(values.get(edit.key)), "files": _yaml(edit.value)}
        for edit in edits
    ]


def _yaml(value: publishing.Value | None) -> str:
    return "" if value is None else to_yaml(document_of(value))


def _told(step: Step) -> dict[str, str]:
    return {"name": step.name, "act": str(step.act)} | ({"message": step.message} if step.message else {})
