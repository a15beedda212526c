"""Two who write Changes, two who approve them, and the moment."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.component.policies.people import person


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def alice(db: None) -> User:
    return person("alice", "Operator")


@pytest.fixture
def bob(db: None) -> User:
    return person("bob", "Operator")


@pytest.fixture
def carol(db: None) -> User:
    return person("carol", "Approver")


@pytest.fixture
def dave(db: None) -> User:
    return person("dave", "Approver")
