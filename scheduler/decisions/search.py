"""The filters of Decisions, and pages of the Decisions found: one definition for the admin's list and for REST.

Nothing is counted. A page begins behind a row (`before`) or ends in front of one (`after`), newest first. If a filter has an
index, the query uses it. Other filters check row by row: a page stops after a number of rows, or a time, and shows how far it came.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import F, Q, Value
from django.db.models.functions import StrIndex
from django.db.models.lookups import GreaterThan

from policies.models import ChangeEvent, Revision
from policies.parameters import (
    SearchError,
    check_order,
    column_is,
    day_or_moment,
    number_is,
    one_of,
    page_limit,
    read_parameters,
    start_of,
    whole_number,
)
from scheduler.decisions.divergence import Divergence
from scheduler.decisions.reading import recorded
from scheduler.models import FOUND_NO_NODE, Decision

VERBS = ("filter", "prioritize", "bind", "preempt", "schedule")
ANSWERS = {"none": "no node", "some": "some nodes refused", "all": "every node", "error": "error"}
SPANS = {"15m": "15 min", "hour": "hour", "day": "day", "yesterday": "yesterday", "week": "7 days"}
# The most rows that a page checks without an index: few at first, then twice as many at each step, or as many as take STEP_SECONDS
# at the speed of the last step, until LONG_SECONDS are over. On a slow disk it checks fewer, so that the reader still gets an answer
# with the progress. The first step is small because the next rows may not be in memory, unlike the last ones.
MOST_LOOKED_AT = 50_000
LOOKED_AT_FIRST = 250
LONG_SECONDS = 0.05
STEP_SECONDS = 0.01
_LARGEST_SEQUENCE = 2**63 - 1
_ORDER = ("-at", "-sequence", "-id")
_MICROSECOND = timedelta(microseconds=1)
_LAST_BUT_ONE = datetime.max.replace(tzinfo=UTC) - _MICROSECOND
_LENGTHS = {
    "15m": timedelta(minutes=15),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}
_BOOLEANS = {"true": True, "false": False}


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """One way to narrow Decisions.

    Attributes:
        name: the URL parameter.
        title: the label for people.
        help: the accepted values, in a sentence.
        condition: returns the condition for a value from a URL; raises ValueError, with a message, for an invalid one.
        choices: the accepted values and their labels, if there are only some.
        leads: whether an index has the rows by time; the lower, the fewer rows it leaves. 0: each row is checked.
        leads_for: the values to which `leads` applies; all if empty.
        leads_by: the indexed condition, if the filter's own condition is narrower.
        is_number: whether the value is an integer.
    """

    name: str
    title: str
    help: str
    condition: Callable[[str], Q]
    choices: Mapping[str, str] = {}
    leads: int = 0
    leads_for: Sequence[str] = ()
    leads_by: Callable[[str], Q] | None = None
    is_number: bool = False


class Key(msgspec.Struct, frozen=True):
    """A place in the order of Decisions: of a row, or only a time."""

    at: datetime
    sequence: int | None = None
    id: UUID | None = None

    def __str__(self) -> str:
        # Not by strftime, which writes years before 1000 without leading zeros.
        moment = f"{self.at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        return moment if self.id is None else f"{moment}~{self.sequence}~{self.id}"

    def beyond(self, way: str) -> Q:
        """Return the condition for the rows on one side: `lt` for older rows, `gt` for newer ones."""
        if self.id is None:
            return Q(**{f"at__{way}": self.at})
        same = Q(at=self.at)
        beyond = Q(**{f"at__{way}": self.at}) | same & Q(**{f"sequence__{way}": self.sequence})
        beyond |= same & Q(sequence=self.sequence, **{f"id__{way}": self.id})
        return Q(**{f"at__{way}e": self.at}) & beyond


class Page(msgspec.Struct, frozen=True):
    """Decisions found, newest first.

    Attributes:
        rows: the Decisions, without their bodies.
        older, newer: the starts of the next pages; None if no rows are known to be there.
        looked_until: the last place checked without an index, if there are more rows beyond it.
    """

    rows: list[Decision]
    older: Key | None
    newer: Key | None
    looked_until: datetime | None = None


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A query: values by filter name as in URLs, times, and the place of the page."""

    values: dict[str, str] = {}
    times: dict[str, str] = {}
    since: datetime | None = None
    until: datetime | None = None
    before: Key | None = None
    after: Key | None = None
    limit: int = 50

    def page(self) -> Page:
        """Return the page.

        Raises:
            django.db.DatabaseError: the database is unavailable, or took too long.
        """
        goes_back = self.after is None
        rows, furthest = self._walk(goes_back=goes_back)
        has_more = len(rows) > self.limit
        rows = rows[: self.limit] if goes_back else rows[: self.limit][::-1]
        looked_until = furthest.at if furthest else None
        if goes_back:
            older = key_of(rows[-1]) if has_more else furthest
            newer = key_of(rows[0]) if rows and self.before else None
            return Page(rows, older, newer, looked_until)
        older = key_of(rows[-1]) if rows else self._just_after()
        return Page(rows, older, key_of(rows[0]) if has_more else furthest, looked_until)

    def _just_after(self) -> Key | None:
        """Return the place whose next older row is the one that `after` names; None if that place is later than any time."""
        if self.after is None or self.after.at > _LAST_BUT_ONE:
            return None
        return Key(self.after.at + _MICROSECOND)

    def _walk(self, *, goes_back: bool) -> tuple[list[Decision], Key | None]:
        """Return the page's rows and one more; if the limits stopped it earlier, also the place of the last row that it checked."""
        leading = self._leading()
        driving = recorded().filter(self._place(), *([self._driving(leading)] if leading else []))
        others = [name for name in self.values if name != leading or BY_NAME[name].leads_by]
        ordered = driving.order_by(*_order(goes_back=goes_back))
        found = ordered.filter(*map(self._condition, others)).defer("body")
        if not others:
            return list(found[: self.limit + 1]), None
        further, nearer = ("lt", "gt") if goes_back else ("gt", "lt")
        keys = ordered.values_list("at", "sequence", "id")
        rows: list[Decision] = []
        looked, step, place = 0, min(LOOKED_AT_FIRST, MOST_LOOKED_AT), Q()
        began = until = monotonic()
        while True:
            # The last row of this step, and the first one after it. Whole places, not only times: any number of rows may share a time.
            edge = [Key(*key) for key in keys.filter(place)[step - 1 : step + 1]]
            is_last = len(edge) <= 1
            rows += found.filter(place, Q() if is_last else edge[1].beyond(nearer))[: self.limit + 1 - len(rows)]
            looked += step
            if is_last or len(rows) > self.limit:
                return rows, None
            before, until = until, monotonic()
            if looked >= MOST_LOOKED_AT or until - began > LONG_SECONDS:
                return rows, edge[0]
            in_time = max(int(step * STEP_SECONDS / (until - before)), LOOKED_AT_FIRST)
            step = min(2 * step, in_time, MOST_LOOKED_AT - looked)
            place = edge[0].beyond(further)

    def _leading(self) -> str:
        """Return the filter whose index leaves the fewest rows; "" if none has an index."""
        leading = [
            (each.leads, name)
            for name, value in self.values.items()
            if (each := BY_NAME[name]).leads and (not each.leads_for or value in each.leads_for)
        ]
        return min(leading)[1] if leading else ""

    def _driving(self, name: str) -> Q:
        return (BY_NAME[name].leads_by or BY_NAME[name].condition)(self.values[name])

    def _condition(self, name: str) -> Q:
        return BY_NAME[name].condition(self.values[name])

    def _place(self) -> Q:
        place = Q()
        if self.since:
            place &= Q(at__gte=self.since)
        if self.until:
            place &= Q(at__lt=self.until)
        if self.after:
            return place & self.after.beyond("gt")
        return place & self.before.beyond("lt") if self.before else place


def _order(*, goes_back: bool) -> tuple[str, ...]:
    return _ORDER if goes_back else tuple(name.removeprefix("-") for name in _ORDER)


def key_of(row: Decision) -> Key:
    """Return the place of a row."""
    return Key(row.at, row.sequence, row.id)


def parse_search(given: Mapping[str, str], now: datetime, *, also: Iterable[str] = ()) -> Search:
    """Parse the parameters of a URL. Empty ones are ignored, because browsers send empty fields.

    Args:
        given: the parameters.
        now: the time from which spans are counted back.
        also: parameters that other code reads.

    Raises:
        SearchError: there are unknown parameters, or invalid values; the message names all of them.
    """
    readers = {**{name: each.condition for name, each in BY_NAME.items()}, **_OTHERS}
    known, faults = read_parameters(given, readers, what="Decisions", also=also)
    if "before" in known and "after" in known:
        faults["after"] = "a page is before a place or after one, not both"
    if "span" in known and ("from" in known or "to" in known):
        faults["span"] = "stands for from and to; give one or the other"
    since, until = _times(known, now)
    check_order(since, until, faults)
    if faults:
        raise SearchError(faults)
    values = {name: given[name] for name in known if name in BY_NAME}
    times: dict[str, str] = {name: given[name] for name in ("span", "from", "to") if name in known}
    places = {name: known[name] for name in ("before", "after", "limit") if name in known}
    return Search(values=values, times=times, since=since, until=until, **places)


def _times(known: Mapping[str, Any], now: datetime) -> tuple[datetime | None, datetime | None]:
    span = known.get("span")
    if span == "yesterday":
        today = start_of(now.astimezone(UTC).date())
        return today - timedelta(days=1), today
    if span:
        return now - _LENGTHS[span], None
    until = known.get("to")
    if isinstance(until, date) and not isinstance(until, datetime):
        until = start_of(until) + timedelta(days=1)
    since = known.get("from")
    if isinstance(since, date) and not isinstance(since, datetime):
        since = start_of(since)
    return since, until


def _span(text: str) -> str:
    return one_of(SPANS, text)


def _key(text: str) -> Key:
    """Parse a place.

    Raises:
        ValueError: it is invalid.
    """
    moment, *of_row = text.split("~")
    try:
        at = day_or_moment(moment)
        if not isinstance(at, datetime):
            return Key(start_of(at))
        if not of_row:
            return Key(at)
        sequence, name = of_row
        return Key(at, whole_number(sequence, _LARGEST_SEQUENCE), UUID(name))
    except (ValueError, TypeError) as error:
        message = f"{text[:60]!r} is no place in the list: take it from the link of a page"
        raise ValueError(message) from error


def _reason(text: str) -> Q:
    return Q(top_reason__icontains=text)


def _choice_is(column: str, choices: Collection[str], text: str) -> Q:
    return Q(**{column: one_of(choices, text)})


def _pod(text: str) -> Q:
    """Return the condition for any part of a name, with the namespace before a slash, or for a complete UID."""
    namespace, slash, name = text.strip().rpartition("/")
    named = Q(pod_name__icontains=name)
    return (named & Q(pod_namespace=namespace) if slash else named) | Q(pod_uid=text.strip())


def _owner(text: str) -> Q:
    kind, slash, name = text.strip().partition("/")
    return Q(owner_kind__iexact=kind, owner_name=name) if slash else Q(owner_name=kind)


def _owner_name(text: str) -> Q:
    kind, slash, name = text.strip().partition("/")
    return Q(owner_name=name if slash else kind)


def _node(text: str) -> Q:
    return Q(placed_on=text) | Q(best=text)


def _rules(text: str) -> Q:
    # Case-sensitive: on SQLite, `contains` is LIKE, which matches `team` with `Team`. No rule has a comma in its name.
    return Q(*(GreaterThan(StrIndex("refused_by", Value(f"\n{name}\n")), 0) for name in text.split(",") if name))


def _answer(text: str) -> Q:
    match one_of(ANSWERS, text):
        case "none":
            return FOUND_NO_NODE
        case "some":
            return Q(feasible__gt=0, feasible__lt=F("nodes"), error="")
        case "all":
            # A Decision with an error has neither allowed nor refused its nodes.
            return Q(feasible__gt=0, feasible=F("nodes"), error="")
    return ~Q(error="")


def _seldom_answer(text: str) -> Q:
    return Q(feasible=0) if text == "none" else _answer(text)


def _refused(text: str) -> Q:
    return Q(feasible=0) if _BOOLEANS[one_of(_BOOLEANS, text)] else Q(feasible__gt=0)


def _missed(text: str) -> Q:
    return Q(placed_best=not _BOOLEANS[one_of(_BOOLEANS, text)])


def _publisher(text: str) -> Q:
    return Q(revision__in=Revision.objects.filter(made_by=text).order_by().values("number"))


def _approver(text: str) -> Q:
    approved = ChangeEvent.objects.approvals().filter(by=text, change__revision__isnull=False)
    return Q(revision__in=approved.order_by().values("change__revision"))


def _named(names: Sequence[str]) -> dict[str, str]:
    return {name: name for name in names}


_YES_NO = {"true": "yes", "false": "no"}
FILTERS = (
    Filter(name="q", title="Pod", help="Any part of the Pod's name, namespace/name, or its UID.", condition=_pod),
    Filter(name="pod_namespace", title="namespace", help="The Pod's namespace; matches exactly.", condition=partial(column_is, "pod_namespace"), leads=8),
    Filter(name="owner", title="owner", help="The Pod's owner: Deployment/web, or web.", condition=_owner,
           leads=4, leads_by=_owner_name),
    Filter(name="node", title="node", help="The best node, or the node of the Pod.", condition=_node),
    Filter(name="refused_by", title="rule that refused", help="The name of a rule that refused a node; team,room: both of them did.",
           condition=_rules),
    Filter(name="reason", title="reason", help="Any part of the most frequent reason of refusals.", condition=_reason),
    Filter(name="top_reason", title="exact reason", help="The most frequent reason of refusals; matches exactly.",
           condition=partial(column_is, "top_reason")),
    Filter(name="answer", title="answer", help="The number of nodes that the Pod may use.", condition=_answer, choices=ANSWERS,
           leads=3, leads_for=("none", "error"), leads_by=_seldom_answer),
    Filter(name="missed", title="best missed", help="Whether the Pod got a node that wasn't one of the best.",
           condition=_missed, choices=_YES_NO, leads=3, leads_for=("true",)),
    Filter(name="verb", title="verb", help="The verb of the call.", condition=partial(_choice_is, "verb", VERBS),
           choices=_named(VERBS), leads=9),
    Filter(name="rule_set", title="rule set", help="The rule set that decided.", condition=partial(column_is, "rule_set"), leads=7),
    Filter(name="rule_set_version", title="version", help="The version of the rule set.",
           condition=partial(number_is, "rule_set_version"), is_number=True),
    Filter(name="assignment", title="Assignment", help="The Assignment that matched the Pod.", condition=partial(column_is, "assignment")),
    Filter(name="revision", title="Revision", help="The Revision that decided.", condition=partial(number_is, "revision"),
           leads=6, is_number=True),
    Filter(name="publisher", title="publisher", help="The account that made the Revision.", condition=_publisher),
    Filter(name="approver", title="approver", help="An account that approved the Change that made the Revision.", condition=_approver),
    Filter(name="mode", title="mode", help="Whether it was answered, or evaluated as a shadow.",
           condition=partial(_choice_is, "mode", ("enforce", "shadow")), choices=_named(("enforce", "shadow"))),
    Filter(name="divergence", title="divergence", help="How a shadow differed from the answer.",
           condition=partial(_choice_is, "divergence", tuple(Divergence)), choices=_named([str(each) for each in Divergence])),
    Filter(name="best", title="best node", help="The node with the best score.", condition=partial(column_is, "best")),
    Filter(name="placed_on", title="placed on", help="The node that the Pod got.", condition=partial(column_is, "placed_on"), leads=5),
    Filter(name="pod_name", title="Pod's name", help="The Pod's name; matches exactly.", condition=partial(column_is, "pod_name"), leads=2),
    Filter(name="pod_uid", title="UID", help="The Pod's UID.", condition=partial(column_is, "pod_uid"), leads=1),
    Filter(name="refused", title="refused", help="true: no node; false: at least one.", condition=_refused, choices=_YES_NO,
           leads=3, leads_for=("true",)),
    Filter(name="process", title="process", help="The process that decided.", condition=partial(column_is, "process")),
)  # fmt: skip
BY_NAME = {each.name: each for each in FILTERS}
_OTHERS: dict[str, Callable[[str], Any]] = {
    "span": _span,
    "from": day_or_moment,
    "to": day_or_moment,
    "before": _key,
    "after": _key,
    "limit": partial(page_limit, "Decisions"),
}
