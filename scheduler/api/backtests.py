"""REST endpoints for backtests: their requests, progress and results."""

from typing import Any

import msgspec
from rest_framework import serializers

from policies.api.base import ReadOnlyViewSet
from policies.api.problems import ConflictProblem
from scheduler.backtest.runs import BacktestError, progress_of, result_of
from scheduler.models import Backtest

_HIDDEN = ["edits", "planner", "planned_at"]


class BacktestSerializer(serializers.ModelSerializer[Backtest]):
    """A backtest without its result."""

    class Meta:
        model = Backtest
        exclude = [*_HIDDEN, "result"]


class BacktestDetailSerializer(serializers.ModelSerializer[Backtest]):
    """A backtest with its progress and its result, which is null until the backtest has ended."""

    done = serializers.SerializerMethodField(help_text="the number of Decisions that are done")
    result = serializers.SerializerMethodField(
        help_text="as `manage.py backtest --output json` prints it; null until the backtest has ended"
    )

    def get_done(self, backtest: Backtest) -> int:
        """Return the number of Decisions that are done."""
        return progress_of(backtest) if backtest.is_under_way else backtest.total

    def get_result(self, backtest: Backtest) -> dict[str, Any] | None:
        """Return the result, as `manage.py backtest --output json` prints it.

        Raises:
            ConflictProblem: it is damaged.
        """
        try:
            result = result_of(backtest)
        except BacktestError as error:
            raise ConflictProblem(str(error)) from error
        return None if result is None else {**msgspec.to_builtins(result), "says": result.sentences}

    class Meta:
        model = Backtest
        exclude = _HIDDEN


class BacktestViewSet(ReadOnlyViewSet):
    """Backtests, newest first."""

    queryset = Backtest.objects.all()
    serializer_class = BacktestSerializer
    detail_serializer_class = BacktestDetailSerializer
    lookup_value_converter = "int"
    may_be_unreadable = {"retrieve"}
