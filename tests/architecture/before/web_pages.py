"""Tried on `5eb86b6` and the commit before: a call as another site's page can send it isn't taken."""

from collections.abc import Iterator

import pytest

from tests.extender import BODY, Extender


@pytest.fixture(scope="module")
def extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with Extender(tmp_path_factory.mktemp("extender")) as started:
        yield started


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json", "Origin": "http://evil.example"}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "application/json", "Host": "evil.example"}, 403),
    ],
    ids=["no-cors", "origin", "fetch metadata", "host"],
)
def test_a_call_of_a_web_page_is_refused(extender: Extender, headers: dict[str, str], status: int) -> None:
    connection = extender.connect()
    connection.request("POST", "/filter", BODY, headers)

    assert connection.getresponse().status == status


def test_kube_schedulers_call_is_taken(extender: Extender) -> None:
    connection = extender.connect()
    connection.request("POST", "/filter", BODY, {"Content-Type": "application/json"})

    assert connection.getresponse().status == 200
