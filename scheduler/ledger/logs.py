"""The names of the ledger's logs: each is a tree of its own, for what is written by one transaction at a time."""

DECISIONS = "decisions"
OUTCOMES = "outcomes"
EVENTS = "events"
LOGS = (DECISIONS, OUTCOMES, EVENTS)
