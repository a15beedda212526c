"""All faults of a form and its rows, as one list: the place and the message of each, and a link to the field."""

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from django.core.exceptions import NON_FIELD_ERRORS
from django.utils.html import strip_tags

# The place of a fault inside an expression, as `rule_forms.describe` writes it.
_PLACE = re.compile(r"line (\d+), column (\d+): ")


class FieldFault(msgspec.Struct, frozen=True):
    """A fault of a field. `field` is its id on the page, empty for the whole form; line and column are from 1, 0 for none."""

    field: str
    where: str
    message: str
    line: int = 0
    column: int = 0


def faults_of_forms(form: Any, formsets: Iterable[Any]) -> list[FieldFault]:
    """Return the faults of a bound form and of its rows, in the order of the page."""
    found = list(_of_form(form, ""))
    for formset in formsets:
        word = formset.form.kind.value
        found += [FieldFault("", word, str(said)) for said in formset.non_form_errors()]
        for number, row in enumerate(formset.forms, 1):
            found += _of_form(row, _row_in_words(word, number, row))
    return found


def _row_in_words(word: str, number: int, row: Any) -> str:
    name = row.data.get(row.add_prefix("name"), "") or row.data.get(row.add_prefix("builtin"), "")
    return f"{word} {number}{f' ({name})' if name else ''}"


def _of_form(form: Any, where: str) -> Iterator[FieldFault]:
    for name, errors in form.errors.items():
        bound = None if name == NON_FIELD_ERRORS or name not in form.fields else form[name]
        label = str(bound.label).lower() if bound else ""
        for error in errors:
            # The rest is the source line with a caret, which is shown at the field.
            text = html.unescape(strip_tags(str(error).partition("<pre")[0]))
            place = _PLACE.match(text)
            line, column = (int(place[1]), int(place[2])) if place else (0, 0)
            said = ", ".join(part for part in (where, label) if part)
            yield FieldFault(bound.id_for_label if bound else "", said, text, line, column)
