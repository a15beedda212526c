"""Numbers and durations of Go, as kube-scheduler reads them."""

import pytest

from scheduler.doctor.shape import API_VERSION, KIND, read, seconds_of
from tests.fuzz.bounds import no_hang


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3s", 3.0), ("500ms", 0.5), ("1m30s", 90.0), ("1.5h", 5400.0), (".5s", 0.5), ("5.s", 5.0), ("0", 0.0),
        ("-3s", -3.0), ("+3s", 3.0), ("250us", 0.00025), ("250µs", 0.00025), ("250μs", 0.00025), ("1ns", 1e-9),
        ("0s", 0.0), ("-0", 0.0),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "3", "s", "3sec", "3 s", "--3s", "1.2.3s", "3s ", "1e3s", ".s", "-"])
def test_what_go_does_not_read_is_no_duration(text: str) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("text", ["9" * 100_000, "1.s" * 50_000 + "9", "1s" * 51])
def test_what_nobody_writes_as_a_duration_is_none_at_once(text: str) -> None:
    with no_hang():
        assert seconds_of(text) is None


@pytest.mark.parametrize(
    ("value", "is_taken"), [(2**31 - 1, True), (2**31, False), (-(2**31) - 1, False), (1e30, False)]
)
def test_a_number_that_goes_int32_cannot_hold_stops_kube_scheduler(value: float, is_taken: bool) -> None:
    plugins = {"score": {"enabled": [{"name": "ImageLocality", "weight": value}]}}
    document = {"apiVersion": API_VERSION, "kind": KIND, "parallelism": value, "profiles": [{"plugins": plugins}]}
    wrong = ["parallelism", "profiles[0].plugins.score.enabled[0].weight"]
    assert [(each.path, each.kind) for each in read(document)[1]] == [(path, "wrong-type") for path in wrong] * (
        not is_taken
    )


def test_an_extenders_weight_has_64_bits() -> None:
    weights = [2**31, 2**63 - 1, 2**63]
    (misfit,) = read({"apiVersion": API_VERSION, "kind": KIND, "extenders": [{"weight": each} for each in weights]})[1]
    assert misfit.path == "extenders[2].weight"
    assert misfit.detail == "It has to be a number from -9223372036854775808 to 9223372036854775807."


def test_data_with_letters_beyond_ascii_is_no_base64() -> None:
    _, misfits = read({"extenders": [{"tlsConfig": {"caData": "ä"}}]})
    assert [(each.path, each.kind) for each in misfits] == [("extenders[0].tlsConfig.caData", "wrong-type")]
