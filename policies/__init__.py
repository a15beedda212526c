"""What operators decide."""

# As pyproject.toml has it, which an installation needn't have at hand.
VERSION = "0.1.0"
