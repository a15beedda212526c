"""Finds missing numbers of a writer's Decisions, and whether they are explained."""

from collections.abc import Iterator

import msgspec
from django.db.models import Q

from scheduler.decisions.frames import Kind
from scheduler.decisions.record import UNREADABLE, split
from scheduler.models import DeadLetter, Decision, DecisionGap


def uncovered(writer: str, first: int, until: int) -> int | None:
    """Return the first of these numbers whose absence from the log isn't explained."""
    gaps = DecisionGap.objects.filter(process=writer, last__gte=first, first__lt=until).values_list("first", "last")
    unlogged = Decision.objects.filter(process=writer, ledger_index=None, sequence__gte=first, sequence__lt=until)
    ones = [*_decisions_put_aside(writer, first, until), *unlogged.values_list("sequence", flat=True)]
    expected = first
    for start, end in sorted([*gaps, *((number, number) for number in ones)]):
        if start > expected:
            break
        expected = max(expected, end + 1)
    return expected if expected < until else None


def _decisions_put_aside(writer: str, first: int, until: int) -> Iterator[int]:
    """Iterate over the numbers among these of Decisions that became dead letters. Other records of a writer are numbered apart."""
    refused = Q(kind=0, sequence__gte=first, sequence__lt=until)
    # Numbered as the record that it is, of which there are never fewer than Decisions.
    unread = Q(kind=Kind.DECISION, sequence__gte=first)
    for letter in DeadLetter.objects.filter(refused | unread, writer=writer).iterator():
        number = _decision_number(letter)
        if number is not None and first <= number < until:
            yield number


def _decision_number(letter: DeadLetter) -> int | None:
    """Return the number of the Decision in a dead letter; None if it is no Decision, or has no number."""
    data = bytes(letter.data)
    try:
        if letter.kind == Kind.DECISION:
            return split(data)[0].sequence
        return msgspec.msgpack.decode(data, type=_Refused).sequence
    except UNREADABLE:
        return None


class _Refused(msgspec.Struct):
    """The members of a record that the database refused which distinguish a Decision from an outcome."""

    process: str
    sequence: int
    verb: str
