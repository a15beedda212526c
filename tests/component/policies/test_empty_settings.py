"""Empty lists of settings: they say what applies without one, as it is set here."""

import msgspec
import pytest
from django.conf import settings
from django.test import Client

from tests.component.pages import get, text_of

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("set_so", "said"),
    [
        ({"review_required": False}, "No Change needs an approval: BERTH_REVIEW_REQUIRED is false."),
        ({"review_required": True}, "Each Change needs 1 approval: BERTH_REVIEW_REQUIRED is true."),
        (
            {"review_required": True, "review_approvals": 2},
            "Each Change needs 2 approvals: BERTH_REVIEW_REQUIRED is true.",
        ),
    ],
)
def test_where_there_is_no_review_setting_the_page_says_whether_review_is_required(
    auditor: Client, monkeypatch: pytest.MonkeyPatch, set_so: dict[str, int], said: str
) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **set_so))
    assert said in text_of(get(auditor, "/admin/policies/reviewsetting/"))


def test_where_there_is_no_gate_setting_the_page_says_what_each_check_does(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {"documents": "blocking", "tests": "blocking", "cost": "warning", "backtest": "off"}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, gate_checks=checks))
    text = text_of(get(auditor, "/admin/policies/gatesetting/"))
    assert "By BERTH_GATE_CHECKS, blocking: documents and tests; warning: cost; off: backtest." in text
