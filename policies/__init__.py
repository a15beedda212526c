"""What operators decide."""

# The version in pyproject.toml, which may be missing from an installation.
VERSION = "0.1.0"
