"""Wire JSON to engine objects, and the cache of Nodes of full bodies."""

import json
import threading
from typing import Any

import msgspec
import pytest

from policies.engine.objects.node import Node
from scheduler.extender.request.objects import NodeCache, read_pod
from scheduler.extender.request.wire import WireError
from tests.builders import make_node, make_pod
from tests.nesting import DEEP


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


class TestReadPod:
    def test_makes_a_pod_of_the_json_that_was_sent(self) -> None:
        pod = read_pod(
            msgspec.Raw(raw(make_pod("web", namespace="shop", labels={"app": "x"}, requests={"cpu": "250m"})))
        )
        assert (pod.name, pod.namespace, pod.labels) == ("web", "shop", {"app": "x"})
        assert pod.requests.get("cpu") == 250

    @pytest.mark.parametrize(
        ("sent", "message"),
        [
            (b"5", "a Pod is an object, not int"),
            (b'{"metadata":{"name":5}}', "Pod: Expected `str`"),
            (b'{"spec":{"containers":[{"resources":{"requests":{"cpu":"x"}}}]}}', "Pod: "),
            (b"{", "not JSON"),
            (b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}", "not JSON: RecursionError|more than"),
            (b'{"metadata":{"name":5},"x":' + b"[" * 900 + b"]" * 900 + b"}", "Pod: Expected `str`"),
        ],
    )
    def test_refuses_what_is_no_pod(self, sent: bytes, message: str) -> None:
        with pytest.raises(WireError, match=message):
            read_pod(msgspec.Raw(sent))

    @pytest.mark.parametrize("member", ["name", "namespace", "uid"])
    def test_refuses_a_pod_that_no_decision_could_be_stored_about(self, member: str) -> None:
        """PostgreSQL takes no NUL; the API server takes none in these either."""
        pod = make_pod()
        pod["metadata"][member] = "a\0b"
        with pytest.raises(WireError, match="its name, namespace or uid holds NUL"):
            read_pod(msgspec.Raw(raw(pod)))

    def test_does_not_quote_a_quantity_that_it_cannot_read(self) -> None:
        with pytest.raises(WireError) as caught:
            read_pod(raw(make_pod(requests={"cpu": "not-for-the-log"})))
        assert str(caught.value) == "Pod: a quantity in it can't be read"


class TestNodeCache:
    def test_the_same_bytes_give_the_same_node(self) -> None:
        cache = NodeCache()
        (first,) = cache.read([raw(make_node("n1"))])
        (again,) = cache.read([raw(make_node("n1"))])
        assert again is first
        (other,) = cache.read([raw(make_node("n1", labels={"a": "b"}))])
        assert other is not first
        assert other.labels["a"] == "b"

    def test_nodes_come_in_the_order_asked_known_or_not(self) -> None:
        cache = NodeCache()
        cache.read([raw(make_node("n2"))])
        names = ["n3", "n2", "n1", "n2"]
        assert [node.name for node in cache.read([raw(make_node(name)) for name in names])] == names
        assert cache.read([]) == []

    def test_of_each_name_the_version_that_came_last_is_kept(self) -> None:
        cache = NodeCache()
        first, second = raw(make_node("a")), raw(make_node("a", labels={"b": "c"}))
        (old,), (new,) = cache.read([first]), cache.read([second])
        assert cache.read([second]) == [new]
        assert cache.read([first]) != [old]
        assert cache.read([second]) != [new]

    def test_more_names_than_fit_make_it_begin_anew(self) -> None:
        cache = NodeCache(size=2)
        a, b = cache.read([raw(make_node("a")), raw(make_node("b"))])
        assert cache.read([raw(make_node("b")), raw(make_node("a"))]) == [b, a]
        (c,) = cache.read([raw(make_node("c"))])
        assert cache.read([raw(make_node("c"))]) == [c]
        assert cache.read([raw(make_node("a"))]) != [a]

    def test_a_body_larger_than_the_cache_is_read_whole(self) -> None:
        names = [f"n{place}" for place in range(9)]
        cache = NodeCache(size=3)
        assert [node.name for node in cache.read([raw(make_node(name)) for name in names])] == names

    @pytest.mark.parametrize(
        ("item", "message"),
        [
            (b"5", r"Nodes.items\[1\]: Node: Expected `object`, got `int`"),
            (b'{"metadata":{"name":"n","x":"\xff"}}', r"the body is not JSON: UnicodeDecodeError"),
            (b'{"metadata":{"labels":{"a":1}}}', r"Nodes.items\[1\]: Node: Expected `str`"),
            (b'{"metadata":{}}', r"Nodes.items\[1\] has no name"),
            (b"{}", r"Nodes.items\[1\] has no name"),
            (raw(make_node("n" * 254)), r"Nodes.items\[1\]: its name has more than 253 characters"),
            (raw(make_node("a\0b")), r"Nodes.items\[1\]: its name holds NUL"),
        ],
    )
    def test_what_is_no_node_is_refused_with_its_place(self, item: bytes, message: str) -> None:
        cache = NodeCache()
        for _ in range(2):
            with pytest.raises(WireError, match=message):
                cache.read([raw(make_node("n1")), item])

    def test_a_node_is_read_however_deeply_its_managed_fields_are_nested(self) -> None:
        deep = b'{"f:a":' * 9_000 + b"{}" + b"}" * 9_000
        item = b'{"metadata":{"managedFields":[{"fieldsV1":' + deep + b'}],"name":"n","labels":{"a":"b"}}}'
        (node,) = NodeCache().read([item])
        assert (node.name, dict(node.labels)) == ("n", {"a": "b"})
        assert msgspec.json.decode(node.text)["metadata"]["name"] == "n"

    def test_threads_that_share_it_get_the_nodes_that_they_asked_for(self) -> None:
        cache = NodeCache(size=20)
        items = [raw(make_node(f"n{place}")) for place in range(30)]
        found: list[list[Node]] = []
        barrier = threading.Barrier(6)

        def work(turn: int) -> None:
            barrier.wait()
            for step in range(30):
                part = items[(turn + step) % 20 :][:10]
                read = cache.read(part)
                assert [node.name for node in read] == [json.loads(item)["metadata"]["name"] for item in part]
                found.append(read)

        threads = [threading.Thread(target=work, args=(turn,)) for turn in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 180
