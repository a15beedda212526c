"""Rows of what happened to Pods, and of Berth's own state. Plain: fields, constraints and one-row predicates."""

from scheduler.models.backtest import Backtest, BacktestChunk
from scheduler.models.decisions import (
    FOUND_NO_NODE,
    OPENING_VERBS,
    AssignmentUse,
    Decision,
    NodeNames,
    Outcome,
    PlacedPod,
    ShadowCount,
    SnapshotPart,
    found_no_node,
)
from scheduler.models.evidence import EvidenceExport, EvidencePiece, Verification
from scheduler.models.history import JournalUse, LegalHold, Pruning, StorageSample
from scheduler.models.ledger import LedgerCheckpoint, LedgerHead, LedgerLeaf, LedgerPruned, LedgerTile
from scheduler.models.notices import Delivery, InboxEntry, Notice, NoticedCondition, NoticeMark, Webhook
from scheduler.models.pending import PendingLook, PendingPod
from scheduler.models.processes import BinderState, Caller, CanaryRun, Process
from scheduler.models.recording import Checkpoint, DeadLetter, DecisionGap
from scheduler.models.requeue import RelabelledNamespace, Requeue, RequeueState, WaitingPod, Wake

__all__ = [
    "FOUND_NO_NODE",
    "OPENING_VERBS",
    "AssignmentUse",
    "Backtest",
    "BacktestChunk",
    "BinderState",
    "Caller",
    "CanaryRun",
    "Checkpoint",
    "DeadLetter",
    "Decision",
    "DecisionGap",
    "Delivery",
    "EvidenceExport",
    "EvidencePiece",
    "InboxEntry",
    "JournalUse",
    "LedgerCheckpoint",
    "LedgerHead",
    "LedgerLeaf",
    "LedgerPruned",
    "LedgerTile",
    "LegalHold",
    "NodeNames",
    "Notice",
    "NoticeMark",
    "NoticedCondition",
    "Outcome",
    "PendingLook",
    "PendingPod",
    "PlacedPod",
    "Process",
    "Pruning",
    "RelabelledNamespace",
    "Requeue",
    "RequeueState",
    "ShadowCount",
    "SnapshotPart",
    "StorageSample",
    "Verification",
    "WaitingPod",
    "Wake",
    "Webhook",
    "found_no_node",
]
