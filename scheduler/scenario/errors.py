"""Why a scenario can't be computed."""


class ScenarioError(Exception):
    """The scenario can't be computed; the message says why, and what to do."""


class ClusterAwayError(ScenarioError):
    """The API server can't be reached, or refuses; a later attempt may succeed."""
