"""Applies documents of files by a Change, or plans what they would change: for commands and for REST.

Pages edit one object at a time, with the version that was shown; complete documents come here.
"""

from scheduler.applying.apply import Applied, Wish, apply, examine_documents
from scheduler.applying.documents import (
    Documents,
    DocumentsError,
    FileFault,
    faults_of_scopes,
    lint_files,
    read_files,
    unknown_rule_sets,
)
from scheduler.applying.plan import Planned, plan_documents

__all__ = [
    "Applied",
    "Documents",
    "DocumentsError",
    "FileFault",
    "Planned",
    "Wish",
    "apply",
    "examine_documents",
    "faults_of_scopes",
    "lint_files",
    "plan_documents",
    "read_files",
    "unknown_rule_sets",
]
