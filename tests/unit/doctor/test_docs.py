"""The table of findings in the documentation holds what the code holds."""

import re
from pathlib import Path

from scheduler.doctor.catalogue import KINDS

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (error|warning|note) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def test_every_finding_is_in_the_table_in_the_words_that_people_get() -> None:
    _, _, section = OPERATIONS.read_text().partition("### Findings")
    rows = ROW.findall(section.partition("\n## ")[0])
    assert rows == [(name, kind.severity, kind.happens, kind.remedy) for name, kind in KINDS.items()]
