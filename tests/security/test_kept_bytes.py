"""What a caller can make the extender keep is in proportion to what is counted, whatever the shape of its bodies."""

import gc
import json
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from policies.engine.objects.node import Node
from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.kinds import PODS
from scheduler.extender.request.node_bytes import MAX_NODES, InternedNodes, KnownNodes
from scheduler.extender.request.node_names import ByName
from scheduler.extender.request.objects import MAX_POD_BYTES, MAX_POD_PIECES, read_pod
from scheduler.extender.request.wire import (
    MAX_BODY_PIECES,
    WireError,
    decode_args,
    decode_binding,
    decode_preemption,
    receive,
)
from scheduler.extender.verbs.in_flight import InFlight
from tests.builders import JSONObject, make_node, make_pod
from tests.fuzz.bounds import peak_bytes
from tests.nesting import DEEP

BEFORE_NODES = b'{"Pod":{"a":1},"Nodes":{"metadata":{},"items":['


def pod_with(value: str) -> msgspec.Raw:
    pod = json.dumps(make_pod()).replace('"schedulerName": "berth"', f'"odd":{value}')
    return msgspec.Raw(pod.encode())


def test_nodes_of_few_bytes_count_with_what_keeping_them_takes() -> None:
    nodes = [b'{"":%d}' % number for number in range(20_000)]
    tracemalloc.start()
    kept = InternedNodes()
    for node in nodes:
        kept.keep(node, bytes(bytearray(node)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= kept.live_bytes


def test_nodes_of_few_bytes_are_forgotten_when_they_take_too_much() -> None:
    known = KnownNodes(most_bytes=1_000_000)
    for start in range(0, 100_000, 1_000):
        known.intern([b'{"":%d}' % number for number in range(start, start + 1_000)])
    assert len(known.texts().all) < 6_000


def test_nodes_without_names_are_told_apart_by_no_more_than_a_name_s_length() -> None:
    sent = BEFORE_NODES + b"{}," * 5_000 + b"{}]}}"
    assert peak_bytes(lambda: receive(sent)) < 2_000_000 + 150 * len(sent)


def test_the_longest_keys_count_with_the_nodes_under_them() -> None:
    kept = InternedNodes()
    kept.keep(b"x" * 300, b"{}")
    assert kept.live_bytes > 550


MANY = MAX_BODY_PIECES + 1
TOO_MANY_VALUES = {
    "names": (decode_args, b'{"Pod":{},"Nodes":null,"NodeNames":[' + b'"",' * MANY + b'""]}'),
    "names, in other words": (decode_args, b'{"pod":{},"nodenames":[' + b'"",' * MANY + b'""]}'),
    "nodes": (decode_args, b'{"pod":{},"nodes":{"items":[' + b"{}," * MANY + b"{}]}}"),
    "members": (decode_args, b'{"Pod":{},' + b'"":0,' * MANY + b'"":0}'),
    "victims": (decode_preemption, b'{"Pod":{},"NodeNameToMetaVictims":{' + b'"":{},' * MANY + b'"":{}}}'),
    "a node's victims": (
        decode_preemption,
        b'{"Pod":{},"NodeNameToMetaVictims":{"":{"Pods":[' + b"{}," * MANY + b"{}]}}}",
    ),
    "a Binding": (decode_binding, b"{" + b'"":0,' * MANY + b'"":0}'),
}


@pytest.mark.parametrize("name", TOO_MANY_VALUES)
def test_a_body_of_more_values_than_memory_bears_is_refused_before_it_is_read(name: str) -> None:
    decode, sent = TOO_MANY_VALUES[name]

    def read() -> None:
        with pytest.raises(WireError, match=r"more than 2,000,000 values|larger than any of a Binding"):
            decode(sent)

    assert peak_bytes(read) < 2 * len(sent)


def test_more_nodes_than_a_cluster_has_are_refused() -> None:
    nodes = b",".join(b'{"metadata":{"name":"%d"}}' % number for number in range(MAX_NODES + 1))
    for sent in (
        BEFORE_NODES + nodes + b"]}}",
        b'{"Pod":{},"Nodes":null,"NodeNames":[' + b'"",' * MAX_NODES + b'""]}',
    ):
        with pytest.raises(WireError, match="more than 100,000 nodes"):
            decode_args(receive(sent))


def test_a_node_that_is_named_again_and_again_is_not_looked_up_so_often() -> None:
    table = Snapshot.of([Node.from_json(make_node("a"))]).table
    sent = b'{"Pod":{"a":1},"Nodes":null,"NodeNames":["' + b'","'.join([b"a"] * (MAX_NODES + 1)) + b'"]}'
    assert ByName().read(sent, table) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"' + "x" * MAX_POD_BYTES + '"', "at most 3,145,728 are read"),
        ("[" + "{}," * MAX_POD_PIECES + "{}]", "more than 150,000 values"),
        ("[" * 60_000 + "]" * 60_000, "RecursionError"),
        ('{"":[' * MAX_POD_PIECES + "1" + "]}" * MAX_POD_PIECES, "more than 150,000 values"),
    ],
    ids=["bytes", "values", "nesting", "objects"],
)
def test_a_pod_that_kubernetes_would_not_take_is_refused_before_it_is_read(value: str, said: str) -> None:
    raw = pod_with(value)

    def read() -> None:
        with pytest.raises(WireError, match=said):
            read_pod(raw)

    # A list takes 64 bytes, and as many are made as this Python reads levels.
    assert peak_bytes(read) < 2 * len(memoryview(raw)) + 100_000 + 64 * min(DEEP, 60_000)


def test_the_largest_pod_is_read() -> None:
    assert read_pod(pod_with("[" + "{}," * 70_000 + '"' + "x" * 2_500_000 + '"]')).name == "web-1"


@pytest.mark.parametrize("name", ["name", "namespace", "uid"])
def test_a_pod_whose_name_is_longer_than_any_is_refused_for_names_are_kept(name: str) -> None:
    pod = make_pod()
    pod["metadata"][name] = "x" * 254
    with pytest.raises(WireError, match="more than 253 characters"):
        read_pod(msgspec.Raw(json.dumps(pod)))


def of_values(number: int) -> JSONObject:
    return make_pod(uid=str(number)) | {"odd": [{} for _ in range(2_000)]}


def of_texts(number: int) -> JSONObject:
    return make_pod(uid=str(number), labels={"a": "x" * 100_000})


def ordinary(number: int) -> JSONObject:
    return make_pod(uid=str(number))


@pytest.mark.parametrize("make", [of_values, of_texts, ordinary])
def test_pods_in_flight_take_no_more_than_their_bound(make: Callable[[int], JSONObject]) -> None:
    in_flight = InFlight(most_bytes=3_000_000)
    tracemalloc.start()
    for number in range(1_500 if make is ordinary else 100):
        raw = msgspec.Raw(json.dumps(make(number)))
        pod = read_pod(raw)
        if number % 3:
            in_flight.passed(pod, "n1", raw)
        else:
            in_flight.binding(pod, "n1")
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 4_000_000
    assert len(in_flight) > 5


def many_labels(number: int) -> JSONObject:
    return make_pod(labels={f"k{number}-{place}": "x" * 60 for place in range(1_000)})


def many_requests(number: int) -> JSONObject:
    return make_pod(requests={f"example.org/{number}-{place}": "1" for place in range(1_000)})


def long_requests(number: int) -> JSONObject:
    return make_pod(requests={f"example.org/{number}": "0" * 100_000 + "1"})


def many_terms(number: int) -> JSONObject:
    terms = [{"labelSelector": {}, "topologyKey": f"{number}-{place}"} for place in range(500)]
    return make_pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def many_owners(number: int) -> JSONObject:
    pod = make_pod()
    pod["metadata"]["ownerReferences"] = [{"name": f"{number}-{place}", "uid": "x" * 60} for place in range(1_000)]
    return pod


def long_owner(number: int) -> JSONObject:
    pod = make_pod()
    pod["metadata"]["ownerReferences"] = [{"name": "x" * 100_000 + str(number), "uid": "u"}]
    return pod


def many_tolerations(number: int) -> JSONObject:
    return make_pod(tolerations=[{"key": f"{number}-{place}", "value": "x" * 60} for place in range(1_000)])


def kept_of(read: Callable[[int], None]) -> int:
    """Return how many bytes stay when 20 have been read."""
    read(0)
    gc.collect()
    tracemalloc.start()
    for number in range(1, 21):
        read(number)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


LARGE = [many_labels, many_requests, long_requests, many_terms, many_owners, long_owner, many_tolerations]


@pytest.mark.parametrize("make", LARGE)
def test_nothing_stays_of_a_large_pod_when_it_has_been_decided(make: Callable[[int], JSONObject]) -> None:
    def decide(number: int) -> None:
        pod = read_pod(msgspec.Raw(json.dumps(make(number))))
        assert None not in (pod.traits, pod.terms, pod.requests, pod.wanted, pod.score_requests)

    assert kept_of(decide) < 300_000


@pytest.mark.parametrize("make", LARGE)
def test_nothing_stays_of_a_large_pod_that_a_watch_has_shown_and_that_has_gone(
    make: Callable[[int], JSONObject],
) -> None:
    def count(number: int) -> None:
        pod = PODS._read(msgspec.Raw(json.dumps(make(number)).encode()))
        assert None not in (pod.traits, pod.terms, pod.requests)

    assert kept_of(count) < 300_000
