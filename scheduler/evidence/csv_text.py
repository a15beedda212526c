"""Tables as CSV that no spreadsheet takes for formulas. Pure."""

import csv
import io
from collections.abc import Sequence

from policies.wording import cell_text


def cell(value: object) -> str:
    """Return a value as the text of a cell: what a spreadsheet would compute begins with an apostrophe."""
    return cell_text("" if value is None else str(value))


def line(values: Sequence[object]) -> str:
    """Return a line of a table."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow([cell(value) for value in values])
    return written.getvalue()
