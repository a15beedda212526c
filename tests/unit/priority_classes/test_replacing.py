"""A class whose value changes is deleted and made anew: whoever is killed at whatever step, it is never lost."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.ruleset import PriorityClass
from scheduler.cluster.errors import APIForbiddenError, APIUnavailableError
from scheduler.priority_classes.execute import REFUSED, Outcome, apply, read_classes
from scheduler.priority_classes.plan import Act, Replacement, Step, ending, plan
from tests.builders import make_priority_class
from tests.priority_server import PriorityServer

OLD, NEW = make_priority_class("batch", 1000), make_priority_class("batch", 2000)


class KilledError(BaseException):
    """The process is killed: nothing catches it."""


class Berth:
    """The executor with its memory, which is killed before or after the requests and writes that a test names."""

    def __init__(self, server: PriorityServer) -> None:
        self.server = server
        self.under_way: dict[str, Replacement] = {}
        self.ended: list[str] = []
        self._server_send = server._send
        server._send = self._send  # type: ignore[method-assign]
        self.never_misses = True
        self._kill_at = -1
        self._count = 0

    def _step(self) -> None:
        self._count += 1
        if self._count == self._kill_at:
            raise KilledError

    def _send(self, method: str, path: str, **options: Any) -> bytes:
        self._step()
        answer = self._server_send(method, path, **options)
        self._check_that_nothing_is_lost()
        self._step()
        return answer

    def _check_that_nothing_is_lost(self) -> None:
        if self.server.made and self.never_misses:
            assert "batch" in self.server.classes or "batch" in self.under_way

    def _write_down(self, step: Step, begun: Replacement) -> None:
        self._step()
        self.under_way[begun.name] = begun
        self._step()

    def look(self, wanted: list[PriorityClass], *, kill_at: int = -1, **options: Any) -> list[Outcome]:
        """Do a look; with `kill_at` it is killed at that of its steps, and comes to nothing more."""
        self._kill_at, self._count = kill_at, 0
        with contextlib.suppress(KilledError):
            found = read_classes(self.server)
            steps = plan(wanted, found, under_way=list(self.under_way.values()), **options)
            outcomes = apply(steps, self.server, journal=self._write_down, pause=lambda _seconds: None)
            self._step()
            self._note(outcomes)
            return outcomes
        return []

    def _note(self, outcomes: list[Outcome]) -> None:
        came = {outcome.step.name: outcome for outcome in outcomes}
        for name, begun in list(self.under_way.items()):
            outcome = came.get(name)
            ended = ending(begun, outcome.step if outcome else None, outcome.found if outcome else None)
            if ended is not None:
                del self.under_way[name]
                self.ended.append(ended[0])


def started(wanted: PriorityClass = OLD) -> Berth:
    """Return a Berth whose class is there."""
    berth = Berth(PriorityServer())
    berth.look([wanted])
    return berth


@pytest.fixture
def berth() -> Berth:
    return started()


def value(berth: Berth) -> int:
    return int(berth.server.classes["batch"]["value"])


def settle(berth: Berth, wanted: list[PriorityClass], **options: Any) -> list[Outcome]:
    for _ in range(4):
        outcomes = berth.look(wanted, **options)
    return outcomes


def test_another_value_deletes_the_class_and_makes_it_anew_with_what_others_wrote_on_it(berth: Berth) -> None:
    berth.server.classes["batch"]["metadata"]["labels"]["team"] = "data"
    berth.server.classes["batch"]["metadata"]["annotations"]["example.org/asked-by"] = "dana"
    berth.server.changes.clear()
    (outcome,) = berth.look([NEW])
    assert outcome.state == "applied"
    assert berth.server.changes == ["DELETE batch", "POST"]
    assert value(berth) == 2000
    metadata = berth.server.classes["batch"]["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["example.org/asked-by"]) == ("data", "dana")
    assert berth.ended == ["done"]
    assert berth.look([NEW])[0].step.act is Act.NOTHING


def test_what_the_api_server_would_refuse_is_asked_before_anything_is_deleted(berth: Berth) -> None:
    before = dict(berth.server.classes)
    berth.server.refuses = lambda document: document["value"] == 2000
    (outcome,) = settle(berth, [NEW])
    assert outcome.state == "refused"
    assert "denied by a webhook" in outcome.message
    assert berth.server.classes == before
    assert berth.under_way == {}


def refuse_from_the_deletion_on(berth: Berth) -> None:
    def refuses(document: dict[str, Any]) -> bool:
        return document["value"] == 2000 and "batch" not in berth.server.classes

    berth.server.refuses = refuses


def test_what_is_refused_all_the_same_has_the_former_one_put_back_once(berth: Berth) -> None:
    refuse_from_the_deletion_on(berth)
    berth.server.changes.clear()
    (outcome,) = berth.look([NEW])
    assert outcome.state == "refused"
    assert "put back: denied by a webhook" in outcome.message
    assert value(berth) == 1000
    assert berth.ended == ["put back"]
    (again,) = settle(berth, [NEW])
    assert (again.step.act, again.state, again.message) == (Act.REFUSED, "refused", outcome.message)
    assert berth.server.changes == ["DELETE batch", "POST", "POST"]


def test_a_refused_one_is_tried_again_when_somebody_asks(berth: Berth) -> None:
    refuse_from_the_deletion_on(berth)
    berth.look([NEW])
    berth.server.refuses = lambda _document: False
    (outcome,) = berth.look([NEW], overwrite={"batch"})
    assert (outcome.state, value(berth)) == ("applied", 2000)
    assert REFUSED not in berth.server.classes["batch"]["metadata"]["annotations"]


def test_a_cluster_that_takes_neither_is_asked_again_until_it_takes_one(berth: Berth) -> None:
    berth.server.refuses = lambda _document: "batch" not in berth.server.classes
    (outcome,) = berth.look([NEW])
    assert outcome.found is None
    assert "The cluster is without it" in outcome.message
    assert not outcome.is_finished
    berth.look([NEW])
    berth.server.refuses = lambda _document: False
    (outcome,) = berth.look([NEW])
    assert (outcome.state, value(berth), berth.ended) == ("applied", 2000, ["done"])


def test_the_global_default_stays_it(berth: Berth) -> None:
    old, new = (msgspec.structs.replace(each, global_default=True) for each in (OLD, NEW))
    berth.look([old])
    # Admission still sees the one that was deleted.
    berth.server.refuses = lambda document: document["globalDefault"] and "batch" not in berth.server.classes
    (outcome,) = berth.look([new])
    assert outcome.state == "applied"
    assert (value(berth), berth.server.classes["batch"]["globalDefault"]) == (2000, True)
    assert berth.look([new])[0].step.act is Act.NOTHING


def test_a_global_default_is_not_deleted_where_the_new_one_could_not_be_made_it(berth: Berth) -> None:
    """That is a change of its own, which a policy may deny: the cluster would be left without a global default."""
    old, new = (msgspec.structs.replace(each, global_default=True) for each in (OLD, NEW))
    berth.look([old])
    berth.server.keeps = lambda name: name == "batch"
    (outcome,) = settle(berth, [new])
    assert (outcome.state, outcome.message) == ("refused", "The API server refused: denied by a policy")
    assert (value(berth), berth.server.classes["batch"]["globalDefault"], berth.under_way) == (1000, True, {})


@pytest.mark.parametrize("becomes_default", [False, True])
def test_beside_another_global_default_only_one_that_becomes_it_is_refused_and_stays(
    berth: Berth, becomes_default: bool
) -> None:
    berth.server.have("theirs", value=5, globalDefault=True)
    outcomes = settle(berth, [msgspec.structs.replace(NEW, global_default=becomes_default)])
    (outcome,) = (each for each in outcomes if each.step.name == "batch")
    assert (outcome.state, value(berth)) == (("refused", 1000) if becomes_default else ("applied", 2000))
    assert ("DELETE batch" in berth.server.changes) is not becomes_default


def test_a_former_global_default_is_put_back_as_it(berth: Berth) -> None:
    old, new = (msgspec.structs.replace(each, global_default=True) for each in (OLD, NEW))
    berth.look([old])
    tries = iter([True, True, True, False])

    def refuses(document: dict[str, Any]) -> bool:
        is_gone = "batch" not in berth.server.classes
        return is_gone and (document["value"] == 2000 or next(tries))

    berth.server.refuses = refuses
    berth.look([new])
    assert (value(berth), berth.server.classes["batch"]["globalDefault"]) == (1000, True)


@pytest.mark.parametrize(("policy", "ended"), [("Keep", "put back"), ("Delete", "given up")])
def test_a_class_that_a_finalizer_holds_and_that_is_removed_here_meanwhile_is_put_back_if_it_stays(
    berth: Berth, policy: str, ended: str
) -> None:
    berth.never_misses = False
    berth.server.classes["batch"]["metadata"]["finalizers"] = ["example.org/inventory"]
    berth.look([NEW])
    removed = [msgspec.structs.replace(NEW, deletion_policy=policy)]
    settle(berth, [], withdrawn=removed)
    assert "deletionTimestamp" in berth.server.classes["batch"]["metadata"]
    del berth.server.classes["batch"]  # who set the finalizer took it off
    settle(berth, [], withdrawn=removed)
    assert berth.ended == [ended]
    assert [each["value"] for each in berth.server.classes.values()] == ([1000] if policy == "Keep" else [])


def test_an_adopted_class_that_is_made_anew_is_still_one_that_berth_never_deletes(berth: Berth) -> None:
    berth.never_misses = False
    berth.server.classes.clear()
    berth.server.have("batch", value=1000)
    adopted = msgspec.structs.replace(OLD, adopt=True, deletion_policy="Delete")
    berth.look([adopted])
    new = msgspec.structs.replace(adopted, value=2000)
    berth.look([new])
    assert value(berth) == 2000
    assert berth.look([], withdrawn=[new])[0].step.act is Act.KEEP


# The longest look has the list, two dry runs, what is written down, the deletion, two makings and a patch, each before and after.
STEPS = st.integers(1, 18)


@pytest.mark.parametrize("is_default", [False, True])
@pytest.mark.parametrize("refused", [False, True])
@given(kills=st.lists(STEPS, max_size=5))
def test_whoever_is_killed_wherever_the_class_ends_as_published_or_as_it_was(
    is_default: bool, refused: bool, kills: list[int]
) -> None:
    old, new = (msgspec.structs.replace(each, global_default=is_default) for each in (OLD, NEW))
    berth = started(old)
    if refused:
        refuse_from_the_deletion_on(berth)
    for kill in kills:
        berth.look([new], kill_at=kill)
    settle(berth, [new])
    assert value(berth) == (1000 if refused else 2000)
    assert berth.server.classes["batch"]["globalDefault"] is is_default
    assert berth.under_way == {}
    if not refused:
        assert berth.server.changes.count("DELETE batch") == 1


WANTED = st.sampled_from([OLD, NEW, make_priority_class("batch", 3000, preemptionPolicy="Never"), None])


@given(
    looks=st.lists(st.tuples(WANTED, st.one_of(st.just(-1), STEPS), st.booleans()), max_size=8),
    last=WANTED,
    deletion=st.sampled_from(["Keep", "Delete"]),
)
def test_whatever_is_published_and_whoever_is_killed_meanwhile_nothing_that_stays_is_lost(
    looks: list[tuple[PriorityClass | None, int, bool]], last: PriorityClass | None, deletion: str
) -> None:
    berth = started()
    berth.never_misses = deletion == "Keep"
    was_live = OLD
    for wanted, kill, is_away in [*looks, *[(last, -1, False)] * 4]:
        berth.server.fault = APIUnavailableError("away") if is_away else None
        was_live = wanted or was_live
        withdrawn = [] if wanted else [msgspec.structs.replace(was_live, deletion_policy=deletion)]
        with contextlib.suppress(APIUnavailableError):
            berth.look([wanted] if wanted else [], kill_at=kill, withdrawn=withdrawn)
    assert berth.under_way == {}
    if last is not None:
        assert value(berth) == last.value
    elif deletion == "Keep":
        assert "batch" in berth.server.classes


@given(at=st.integers(0, 3), killed=st.booleans())
def test_two_executors_at_once_make_it_once(at: int, killed: bool) -> None:
    """The second looks before one of the changes of the first, which goes on then, or was killed there."""
    one = started()
    other = Berth(one.server)
    other.under_way = one.under_way
    before_it = iter([False] * at + [True])

    def come_in() -> None:
        if next(before_it, False):
            other.look([NEW])
            if killed:
                raise KilledError

    one.server.before_change = come_in
    one.look([NEW])
    one.server.before_change = lambda: None
    settle(one, [NEW])
    assert value(one) == 2000
    assert one.under_way == {}
    assert one.server.made == 2


def test_credentials_that_are_refused_after_the_deletion_leave_the_rest_to_the_next_look(berth: Berth) -> None:
    def refuse() -> None:
        if "batch" not in berth.server.classes:
            berth.server.fault = APIForbiddenError("Unauthorized", status=401)

    berth.server.before_change = refuse
    (outcome,) = berth.look([NEW])
    assert outcome.state == "pending"
    assert "The cluster is without it until it is made anew" in outcome.message
    berth.server.before_change, berth.server.fault = (lambda: None), None
    settle(berth, [NEW])
    assert value(berth) == 2000
    assert berth.under_way == {}


def test_an_api_server_that_ends_in_the_middle_leaves_the_rest_to_the_next_look(berth: Berth) -> None:
    def end() -> None:
        if berth.server.changes[-1] == "POST":
            berth.server.fault = APIUnavailableError("reset")

    berth.server.before_change = end
    (outcome,) = berth.look([NEW])
    assert (outcome.state, outcome.found) == ("pending", None)
    assert outcome.message == "The cluster is without it until it is made anew: reset"
    assert "batch" not in berth.server.classes
    berth.server.before_change, berth.server.fault = (lambda: None), None
    (outcome,) = berth.look([NEW])
    assert (outcome.state, value(berth), berth.ended) == ("applied", 2000, ["done"])


def test_an_api_server_that_ends_before_the_deletion_isnt_said_to_be_without_the_class(berth: Berth) -> None:
    def end() -> None:
        berth.server.fault = APIUnavailableError("reset")

    berth.server.before_change = end
    (outcome,) = berth.look([NEW])
    assert (outcome.state, outcome.message) == ("pending", "reset")
    assert outcome.found is not None


def test_a_class_that_others_make_in_between_is_left_to_them(berth: Berth) -> None:
    berth.look([NEW], kill_at=8)
    assert "batch" not in berth.server.classes
    berth.server.have("batch", value=7)
    (outcome,) = berth.look([NEW])
    assert (outcome.state, value(berth), berth.ended) == ("foreign", 7, ["given up"])
