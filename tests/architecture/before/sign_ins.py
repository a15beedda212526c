"""Tried on `d16cdac` and the commit before: who signs in, and who fails to, leaves a line in the log."""

import logging

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.mark.django_db
def test_a_sign_in_and_a_failed_one_leave_a_line_with_account_and_address(caplog: pytest.LogCaptureFixture) -> None:
    User.objects.create_user("ann", password="right", is_staff=True)
    caplog.set_level(logging.INFO)
    for password in ("wrong", "right"):
        Client(REMOTE_ADDR="192.0.2.7").post("/admin/login/", {"username": "ann", "password": password}, secure=True)

    lines = [record for record in caplog.records if record.name == "berth.signin"]
    assert [record.getMessage() for record in lines] == ["a sign-in failed", "signed in"]
    assert {record.__dict__["address"] for record in lines} == {"192.0.2.7"}
