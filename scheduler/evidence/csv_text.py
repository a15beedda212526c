"""Writes CSV whose cells no spreadsheet takes for formulas. Pure."""

import csv
import io
from collections.abc import Sequence

from policies.wording import cell_text


def cell(value: object) -> str:
    """Return a value as the text of a cell, with an apostrophe in front if a spreadsheet would take it for a formula."""
    return cell_text("" if value is None else str(value))


def line(values: Sequence[object]) -> str:
    """Return a line of a table."""
    written = io.StringIO()
    # Python 3.11 quotes the characters of the line terminator, and a spreadsheet reads each unquoted carriage return as a line's end.
    csv.writer(written, lineterminator="\r\n").writerow([cell(value) for value in values])
    return written.getvalue().removesuffix("\r\n") + "\n"
