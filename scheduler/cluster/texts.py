"""Texts of the cluster that whoever made an object could choose, as a database stores and indexes them. Pure."""

# As Kubernetes' own names have at most.
NAME_CHARACTERS = 253


def stored(text: str, longest: int = NAME_CHARACTERS) -> str:
    """Return what a database stores of a text: PostgreSQL takes no NUL, which the API server does, and an index none of any length."""
    return text.replace("\0", "")[:longest]
