"""Backtests: recorded Decisions decided anew by what a Change would make live."""
