"""The command line of benches that take no arguments."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter


def parse_no_arguments(doc: str | None) -> None:
    """Answer --help with a bench's docstring, and refuse arguments."""
    ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter).parse_args()
