"""PriorityClass documents: what Kubernetes would refuse is refused here, before anybody saves it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.documents import document_of, read_priority_class
from policies.engine.errors import RuleSetError
from policies.engine.ruleset import (
    Assignment,
    PriorityClass,
    Revision,
    RuleSet,
    decode_priority_class,
    decode_revision,
    encode,
)
from policies.engine.validation import read_document
from tests.builders import assignment_document, priority_class_document, rule_set_document

LABEL = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?\Z")
NAMES = st.lists(LABEL, min_size=1, max_size=5).map(".".join).filter(lambda name: not name.startswith("system-"))
CLASSES = st.builds(
    PriorityClass,
    name=NAMES,
    value=st.integers(-(2**31), 10**9),
    description=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0")),
    global_default=st.booleans(),
    preemption_policy=st.sampled_from(["PreemptLowerPriority", "Never"]),
    adopt=st.booleans(),
    deletion_policy=st.sampled_from(["Keep", "Delete"]),
)


def faults(document: object) -> dict[str, str]:
    with pytest.raises(RuleSetError) as caught:
        read_priority_class(document)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_a_value_is_all_that_is_needed() -> None:
    assert read_priority_class(priority_class_document("batch", 1000)) == PriorityClass(name="batch", value=1000)


def test_every_member_is_read() -> None:
    document = priority_class_document(
        "shop.batch-low", -5, "Batch that may wait", globalDefault=True, preemptionPolicy="Never", adopt=True,
        deletionPolicy="Delete",
    )  # fmt: skip
    assert read_priority_class(document) == PriorityClass(
        name="shop.batch-low",
        value=-5,
        description="Batch that may wait",
        global_default=True,
        preemption_policy="Never",
        adopt=True,
        deletion_policy="Delete",
    )


@given(value=CLASSES)
def test_a_class_reads_back_from_its_document_and_from_a_revision(value: PriorityClass) -> None:
    assert read_document(document_of(value)) == value
    revision = Revision(number=1, priority_classes=[msgspec.structs.replace(value, version=3)])
    assert decode_revision(encode(revision)) == revision
    assert decode_priority_class(encode(value)) == value


@given(value=CLASSES)
def test_defaults_that_are_spelled_out_leave_the_bytes_as_they_are(value: PriorityClass) -> None:
    spelled = {
        name: getattr(value, field.name) for field in msgspec.structs.fields(value) for name in [field.encode_name]
    }
    spelled = {name: spelled[name] for name in ("globalDefault", "preemptionPolicy", "adopt", "deletionPolicy")}
    document = priority_class_document(value.name, value.value, value.description, **spelled)
    assert encode(read_priority_class(document)) == encode(read_priority_class(document_of(value)))


@pytest.mark.parametrize("value", [-(2**31), -1, 0, 1_000_000_000])
def test_the_values_that_kubernetes_allows_pass(value: int) -> None:
    assert read_priority_class(priority_class_document(value=value)).value == value


@pytest.mark.parametrize("value", [1_000_000_001, 2_000_000_000, 2**31, -(2**31) - 1])
def test_values_that_kubernetes_refuses_are_refused(value: int) -> None:
    assert faults(priority_class_document(value=value)) == {
        "spec.value": f"must be -2147483648 to 1000000000, not {value}"
    }


@pytest.mark.parametrize("value", [True, 1.5, 1000.0, "1000"])
def test_a_value_that_is_no_whole_number_is_refused(value: object) -> None:
    assert "must be a whole number" in faults(priority_class_document(value=value))["spec.value"]


def test_a_value_is_needed() -> None:
    assert faults(priority_class_document(value=None)) == {"spec.value": "is needed"}


@pytest.mark.parametrize("name", ["a", "0", "batch-low", "a.b-c.0", ".".join(["a" * 63] * 3), "a" * 253, "systems"])
def test_dns_subdomains_are_names(name: str) -> None:
    assert read_priority_class(priority_class_document(name)).name == name


@pytest.mark.parametrize(
    "name", ["A", "a_b", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a" * 254, "ä", "a b", "a\n", "a/b"]
)
def test_other_names_are_refused(name: str) -> None:
    assert "at most 253" in faults(priority_class_document(name))["metadata.name"]


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical", "system-mine"])
def test_names_that_kubernetes_keeps_for_itself_are_refused(name: str) -> None:
    assert "reserved" in faults(priority_class_document(name))["metadata.name"]


def test_all_faults_come_at_once_with_their_paths() -> None:
    document = priority_class_document(
        "System", "high", globalDefault="yes", preemptionPolicy="Always", deletionPolicy="Orphan", adopt=1, weight=3
    )
    assert set(faults(document)) == {
        "metadata.name", "spec.value", "spec.globalDefault", "spec.preemptionPolicy", "spec.deletionPolicy",
        "spec.adopt", "spec.weight",
    }  # fmt: skip


@pytest.mark.parametrize("document", [None, [], "x", {}, {"kind": "PriorityClass"}, {"spec": []}])
def test_what_is_no_such_document_is_refused(document: object) -> None:
    assert faults(document)


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (rule_set_document(), RuleSet),
        (assignment_document(), Assignment),
        (priority_class_document(), PriorityClass),
    ],
)
def test_a_document_is_read_by_its_kind(document: dict[str, Any], kind: type) -> None:
    assert isinstance(read_document(document), kind)


@pytest.mark.parametrize("document", [None, {}, [1]])
def test_a_document_without_a_kind_is_taken_for_a_rule_set(document: object) -> None:
    with pytest.raises(RuleSetError, match="apiVersion"):
        read_document(document)


@pytest.mark.parametrize("kind", ["Pod", "priorityclass", 1, ["PriorityClass"]])
def test_another_kind_is_refused(kind: object) -> None:
    with pytest.raises(RuleSetError, match="must be RuleSet, Assignment, PriorityClass, Pause or Exemption"):
        read_document({"kind": kind})


def test_a_revision_without_classes_has_the_bytes_that_it_had() -> None:
    assert b"priorityClasses" not in encode(Revision(number=1))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)


@given(
    value=CLASSES, member=st.sampled_from(["name", "value", "globalDefault", "deletionPolicy", "x"]), inside=ANYTHING
)
def test_whatever_stands_in_a_document_is_read_or_refused_in_words(
    value: PriorityClass, member: str, inside: Any
) -> None:
    document = document_of(value)
    document["metadata" if member == "name" else "spec"][member] = inside
    try:
        read = read_priority_class(document)
    except RuleSetError as error:
        said = [fault.message for fault in error.faults]
    else:
        said = ["read"] if read_priority_class(document_of(read)) == read else []
    assert said
    assert all(said)


def test_a_default_that_came_as_another_text_is_left_out_like_the_default_itself() -> None:
    """As a database, or a cluster, gives it: equal, and another object."""
    spelled: Any = "".join(["PreemptLower", "Priority"])
    value = PriorityClass(name="web", value=1, preemption_policy=spelled)
    assert encode(value) == encode(PriorityClass(name="web", value=1))
    revision = Revision(number=1, priority_classes=[value])
    assert encode(revision) == encode(decode_revision(encode(revision)))
