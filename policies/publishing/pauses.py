"""Pausing, exempting and resuming: Changes of a single thing, published at once unless approvals or the gate are required."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from policies.engine import ruleset as engine
from policies.engine.documents import read_exemption, read_pause
from policies.engine.errors import Fault, RuleSetError
from policies.engine.pauses import EVERYTHING, Target, ends_at
from policies.models import Change, ChangeEdit, RevisionPart
from policies.publishing import audit, lifecycle
from policies.publishing.actors import SAME_CLICK, By, name_of
from policies.publishing.changes import open_change, publish_change, submit_act
from policies.publishing.contents import Edit, missing_target
from policies.publishing.errors import OvertakenError, PublishingError
from policies.publishing.parts import Kind
from policies.publishing.revisions import current_revision, lock_revisions
from policies.publishing.shown import check_shown, digest_of_shown
from policies.publishing.standing import check_ahead, edit_of, needs_gate, needs_review
from policies.sentences import not_paused, suspension_sentence, target_in_words

_MAX_NAME = 63


class Suspended(NamedTuple):
    """A live Pause or Exemption, with its history.

    Attributes:
        what: its target, in words.
        by: who made it live.
        at: when that was.
        revision: the Revision that made it live.
        ends_at: when it ends by itself; None for never.
        has_ended: whether that is past: it no longer has an effect, and can be removed.
    """

    value: engine.Pause | engine.Exemption
    what: str
    by: str
    at: datetime
    revision: int
    ends_at: datetime | None
    has_ended: bool


def pause(
    *, target: str, by: By, reason: str, until: str = "", expected_digest: str = "", replaces: str = ""
) -> Change:
    """Take a rule, a rule set, an Assignment or everything out of force; an existing Pause gets the new reason and end.

    If files made several Pauses of the target, that is the one which lasts longest, and those that outlast the new end are removed.

    Args:
        target: `everything`, `Assignment/NAME`, `RuleSet/NAME` or `RuleSet/NAME/RULE`.
        by: who pauses.
        reason: why, in that person's words.
        until: when it ends by itself, RFC 3339; empty for when somebody resumes.
        expected_digest: `digest_of_shown` of the number of the Revision that was live when that person looked.
        replaces: `digest_of_shown` of the live Pause that that person looked at; empty to compare nothing.

    Returns:
        The Change: published, or in review where it needs approvals or waits for the gate.

    Raises:
        PublishingError: there is no such thing, it has the same Pause already, the end is past, or this account may not pause.
    """
    with transaction.atomic():
        live = lock_revisions()
        check_shown(expected_digest, live.number)
        known = pause_of(target, live)
        check_shown(replaces, *([known] if known else []))
        name = known.name if known else _name_for(target, {each.name for each in live.pauses})
        spec = {"target": target, "reason": reason} | ({"until": until} if until else {})
        value = _read_pause(name, spec)
        _check_end(value)
        value = _just_asked(value, by) or value
        edits = [Edit.of(value), *_outlasting(value, live)]
        change = _make(f"Pause {target_in_words(target)}", edits, by, reason, act="pause")
        _record(audit.Kind.PAUSE, change, target, by, reason, until=value.until)
        return change


def _just_asked(wanted: engine.Pause, by: By) -> engine.Pause | None:
    """Return the same Pause that the same person sent to review a moment ago: then the form was sent twice.

    An end that is counted from the click differs between two clicks by the time between them, so it needn't be equal.
    """
    end = ends_at(wanted.until)
    waiting = ChangeEdit.objects.filter(
        kind=Kind.PAUSE,
        name=wanted.name,
        author=name_of(by),
        edited_at__gt=timezone.now() - SAME_CLICK,
        change__state__in=[lifecycle.IN_REVIEW, lifecycle.APPROVED],
    )
    for value in (edit_of(row).value for row in waiting):
        if end is None or not isinstance(value, engine.Pause) or (other := ends_at(value.until)) is None:
            continue
        if msgspec.structs.replace(value, until=wanted.until) == wanted and abs(other - end) < SAME_CLICK:
            return value
    return None


def pause_of(target: str, live: engine.Revision) -> engine.Pause | None:
    """Return the Pause of a thing; if files made several, the one that lasts longest."""
    return max((each for each in live.pauses if each.target == target), key=lasts_until, default=None)


def lasts_until(value: engine.Pause | engine.Exemption) -> datetime:
    """Return when it ends by itself, for comparisons: one without an end lasts longest."""
    return ends_at(value.until) or datetime.max.replace(tzinfo=UTC)


def _outlasting(value: engine.Pause, live: engine.Revision) -> list[Edit]:
    """Return the removals of other Pauses of the same target that would keep it paused beyond this one's end."""
    others = [each for each in live.pauses if each.target == value.target and each.name != value.name]
    return [Edit(Kind.PAUSE, each.name, None) for each in others if lasts_until(each) > lasts_until(value)]


def resume(*, target: str, by: By, reason: str, expected_digest: str = "", looked_at: str = "") -> Change:
    """End all Pauses of a target, so that it is in force again; args, result and errors as for `pause`.

    `looked_at` is the digest of the Pause that was looked at, or of one of them; if it is empty, nothing is compared.
    """
    with transaction.atomic():
        live = lock_revisions()
        check_shown(expected_digest, live.number)
        known = [each for each in live.pauses if each.target == target]
        if looked_at not in map(digest_of_shown, known):
            check_shown(looked_at, *known[:1])
        if not known:
            _read_pause("any", {"target": target, "reason": "any"})  # what can't be a target is said first
            raise PublishingError([not_paused(target)])
        edits = [Edit(Kind.PAUSE, each.name, None) for each in known]
        change = _make(f"Resume {target_in_words(target)}", edits, by, reason, act="pause")
        _record(audit.Kind.RESUME, change, target, by, reason)
        return change


def exempt(
    *, name: str, spec: Mapping[str, Any], by: By, expected_digest: str = "", replaces: str | None = None
) -> Change:
    """Exempt some Pods from a rule until a moment; this replaces an Exemption of the same name.

    Args:
        name: the name of the Exemption.
        spec: the spec of its document.
        by: who does it.
        expected_digest: as in `pause`.
        replaces: `digest_of_shown` of the Exemption that was looked at, "" if there was none; None to replace whichever exists.

    Raises:
        OvertakenError: an Exemption of this name is live that this person hasn't seen.
        PublishingError: with every fault in it, or because this account may not exempt Pods.
    """
    with transaction.atomic():
        live = lock_revisions()
        _check_replaced(_exemption(live, name), replaces)
        check_shown(expected_digest, live.number)
        try:
            value = read_exemption(_exemption_document(name, spec))
        except RuleSetError as error:
            raise PublishingError(error.faults) from error
        _check_end(value)
        change = _make(f"Exemption {name}", [Edit.of(value)], by, value.reason)
        _record(audit.Kind.EXEMPT, change, value.target, by, value.reason, name=name, until=value.until)
        return change


def _exemption_document(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": engine.API_VERSION, "kind": "Exemption", "metadata": {"name": name}, "spec": dict(spec)}


def exemption_faults(name: str, spec: Mapping[str, Any]) -> list[Fault]:
    """Return the faults of an Exemption that somebody is typing: those of its document, and a target that isn't live."""
    faults: list[Fault] = []
    try:
        read_exemption(_exemption_document(name, spec))
    except RuleSetError as error:
        faults += error.faults
    if said := missing_target(str(spec.get("target", "")), current_revision()):
        faults.append(Fault("spec.target", said))
    return faults


def end_exemption(*, name: str, by: By, reason: str, expected_digest: str = "", looked_at: str = "") -> Change:
    """Put a rule back in force for exempted Pods; `looked_at` as in `resume`, errors as for `pause`."""
    with transaction.atomic():
        live = lock_revisions()
        check_shown(expected_digest, live.number)
        found = _exemption(live, name)
        check_shown(looked_at, *([found] if found else []))
        if found is None:
            raise PublishingError([f"There is no Exemption {name}."])
        change = _make(f"End Exemption {name}", [Edit(Kind.EXEMPTION, name, None)], by, reason)
        _record(audit.Kind.EXEMPTION_END, change, found.target, by, reason, name=name)
        return change


def _exemption(live: engine.Revision, name: str) -> engine.Exemption | None:
    return next((each for each in live.exemptions if each.name == name), None)


def _check_replaced(there: engine.Exemption | None, replaces: str | None) -> None:
    if there is not None and replaces is not None and replaces != digest_of_shown(there):
        said = f"There is an Exemption {there.name} already: {suspension_sentence(there)}."
        advice = "Give this one another name; or add it again, and it takes the other's place."
        raise OvertakenError([said, advice], seen=digest_of_shown(there))


def _read_pause(name: str, spec: Mapping[str, Any]) -> engine.Pause:
    """Check the spec of a Pause.

    Raises:
        PublishingError: with every fault in it.
    """
    document = {"apiVersion": engine.API_VERSION, "kind": "Pause", "metadata": {"name": name}, "spec": spec}
    try:
        return read_pause(document)
    except RuleSetError as error:
        raise PublishingError(error.faults) from error


def _check_end(value: engine.Pause | engine.Exemption) -> None:
    if (end := ends_at(value.until)) is not None:
        check_ahead(end, "It would end")


def _make(title: str, edits: Sequence[Edit], by: By, reason: str, act: str = "edit") -> Change:
    change = open_change(title=title, edits=edits, by=by, reason=reason, act=act)
    if needs_review(edits) or needs_gate(edits):
        return submit_act(change=change, by=by)
    publish_change(change=change, by=by, expected_digest=change.digest, reason=reason)
    return Change.objects.select_related("revision").get(pk=change.pk)


def _record(kind: audit.Kind, change: Change, target: str, by: By, reason: str, **more: str) -> None:
    """Record what was paused, exempted or resumed: the event concerns the thing that the target names."""
    about = Target.parse(target)
    thing = (about.kind, about.name)
    audit.record_single(kind, thing, change, change.revision, by=by, reason=reason, more={"target": target, **more})


def _name_for(target: str, taken: Iterable[str]) -> str:
    """Return a name for the Pause of a thing: derived from the target, with a digest where that alone would be ambiguous."""
    plain = re.sub(r"[^a-z0-9]+", "-", target.lower()).strip("-")
    if Target.parse(target).rule or len(plain) > _MAX_NAME or plain in taken or not plain:
        # What isn't UTF-8 is replaced: the document's check refuses such a target.
        digest = hashlib.sha256(target.encode(errors="replace")).hexdigest()[:8]
        return f"{plain[: _MAX_NAME - 9]}-{digest}".strip("-")
    return plain


def suspended(now: datetime) -> list[Suspended]:
    """Return the live Pauses, everything first, then the Exemptions, each with who made it live and when."""
    live = current_revision()
    values: list[engine.Pause | engine.Exemption] = [
        *sorted(live.pauses, key=lambda each: (each.target != EVERYTHING, each.target)),
        *live.exemptions,
    ]
    if not values:
        return []
    rows = RevisionPart.objects.filter(kind__in=[Kind.PAUSE, Kind.EXEMPTION], until=None).select_related("since")
    since = {(row.kind, row.name): row.since for row in rows}
    found = []
    for value in values:
        made = since.get((type(value).__name__, value.name))
        if made is None:
            continue  # another Revision has become live: the next read finds it
        end = ends_at(value.until)
        has_ended = end is not None and end <= now
        what = target_in_words(value.target)
        found.append(Suspended(value, what, made.made_by, made.created_at, made.number, end, has_ended))
    return found


def ending_soon(now: datetime) -> list[Suspended]:
    """Return the live Exemptions that end within the configured days, or have ended: somebody has to act on them."""
    soon = now + timedelta(days=settings.BERTH.exemption_notice_days)
    return [
        each
        for each in suspended(now)
        if isinstance(each.value, engine.Exemption) and each.ends_at is not None and each.ends_at <= soon
    ]
