"""Why a scenario can't be computed."""


class ScenarioError(Exception):
    """The scenario can't be computed; the message says why, and what to do."""
