"""Backtests: decide recorded Decisions again by the rules that a Change would publish."""
