"""Whether and how the server is reached: exit codes, sentences, and that the token goes nowhere else."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from berth.places import Place

from berth import places, server
from tests.unit.berth.conftest import Berth, Stub


def test_who_isnt_reached_ends_with_3_in_text_and_json(berth: Berth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_SERVER", "http://127.0.0.1:1")

    ran = berth("status")
    assert (ran.code, ran.out) == (3, "")
    assert "http://127.0.0.1:1 can't be reached" in ran.err
    # Not of BERTH_SERVER alone: the address may come from elsewhere.
    assert "is this its address (--server, BERTH_SERVER, `berth login`)?" in ran.err

    ran = berth("status", "--output", "json")
    assert ran.code == 3
    assert (ran.json["ok"], ran.json["reached"]) == (False, False)


def test_an_act_whose_answer_was_lost_may_have_been_done(berth: Berth, stub: Stub) -> None:
    stub.answer("POST", "/revisions/3/rollback", "cut", Content_Length="100")
    stub.answer("GET", "/status", "cut", Content_Length="100")

    ran = berth("rollback", "3", "--reason", "INC-1")
    assert ran.code == 3
    assert "can't be reached" in ran.err
    assert "The server may have done it: look before you repeat it." in ran.err

    ran = berth("status")
    assert (ran.code, "may have done it" in ran.err) == (3, False)


def test_an_act_to_which_a_proxy_answered_may_have_been_done(berth: Berth, stub: Stub) -> None:
    stub.answer("POST", "/revisions/3/rollback", "<html>Gateway Timeout</html>", 504)
    stub.answer("GET", "/status", "<html>Gateway Timeout</html>", 504)

    assert "The server may have done it" in berth("rollback", "3", "--reason", "INC-1").err
    assert "may have done it" not in berth("status").err


@pytest.mark.parametrize("body", ["<html>moved</html>", "[]", "{}", '{"change": 1, "revision"'])
def test_an_act_whose_answer_cant_be_read_may_have_been_done(berth: Berth, stub: Stub, body: str) -> None:
    stub.answer("POST", "/revisions/3/rollback", body)
    stub.answer("GET", "/status", body)

    ran = berth("rollback", "3", "--reason", "INC-1")

    assert ran.code == 3
    assert ran.err.endswith("\nThe server may have done it: look before you repeat it.\n")
    assert "may have done it" not in berth("status").err


@pytest.mark.parametrize(("body", "status"), [("<html>moved</html>", 200), ("cut", 200), ("<html>away</html>", 504)])
@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("/lint", ["lint", "FILE"]),
        ("/changes/plan", ["plan", "FILE"]),
        ("/changes/plan", ["diff", "FILE"]),
        ("/assignments/which", ["which", "FILE"]),
        ("/scenario", ["simulate", "--live", "shop/web-1"]),
    ],
)
def test_a_question_changes_nothing_whatever_its_answer_is(
    berth: Berth, stub: Stub, tmp_path: Path, path: str, arguments: list[str], body: str, status: int
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("a: b\n")
    stub.answer("POST", path, body, status, **({"Content_Length": "100"} if body == "cut" else {}))

    ran = berth(*(str(file) if each == "FILE" else each for each in arguments))

    assert (ran.code, len(stub.asked), "may have done it" in ran.err) == (3, 1, False)


def _closed_after_the_call(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)


def test_a_server_that_closes_without_a_word_is_said_with_one_full_stop(
    berth: Berth, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("BERTH_SERVER", f"http://127.0.0.1:{server.getsockname()[1]}")
        threading.Thread(target=_closed_after_the_call, args=[server], daemon=True).start()
        ran = berth("status")
    assert ran.code == 3
    assert ".." not in ran.err


def test_an_act_that_was_never_sent_was_not_done(berth: Berth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_SERVER", "http://127.0.0.1:1")

    ran = berth("rollback", "3", "--reason", "INC-1")

    assert (ran.code, "may have done it" in ran.err, "Is it running" in ran.err) == (3, False, True)


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, "<html>a portal</html>", {}),
        (502, "<html>Bad Gateway</html>", {}),
        (302, "", {"Location": "https://x.org/"}),
        (403, "{}", {}),
    ],
)
def test_who_isnt_berth_ends_with_3(berth: Berth, stub: Stub, status: int, body: str, headers: dict[str, str]) -> None:
    stub.answer("GET", "/status", body, status, **headers)

    ran = berth("status")

    assert ran.code == 3
    assert "isn't Berth" in ran.err
    assert len(stub.asked) == 1


def test_what_the_extender_or_a_proxy_says_in_json_of_its_own_ends_with_3_and_is_told(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/status", {"Error": "no such verb; Berth's extender serves /filter"}, 404)

    ran = berth("status")

    assert ran.code == 3
    assert "answered 404" in ran.err
    assert "Berth's extender serves /filter" in ran.err


@pytest.mark.parametrize(
    "problem",
    [{"detail": "Not Found"}, {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "No such page."}],
    ids=["FastAPI", "Spring"],
)
def test_the_error_of_another_server_isnt_taken_for_a_refusal(
    berth: Berth, stub: Stub, problem: dict[str, Any]
) -> None:
    stub.answer("GET", "/status", problem, 404)

    ran = berth("status")

    assert ran.code == 3
    assert "answered 404 to GET /api/v1/status: it isn't Berth" in ran.err
    assert problem["detail"] in ran.err


def test_what_stands_before_berth_and_takes_no_such_body_is_said_with_what_to_do(berth: Berth, stub: Stub) -> None:
    stub.answer("POST", "/pauses", "<html>413 Request Entity Too Large</html>", 413)

    ran = berth("pause", "everything", "--reason", "x")

    assert ran.code == 3
    assert "answered 413" in ran.err
    assert "Divide the files" in ran.err


@pytest.mark.parametrize("body", ["", "null", "[]", '"up"', '{"status": "UP"}', "[" * 100_000])
@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("pause", "everything", "--reason", "x"), ("POST", "/pauses")),
        (("resume", "everything"), ("DELETE", "/pauses/everything")),
        (("rollback", "3", "--reason", "x"), ("POST", "/revisions/3/rollback")),
        (("status",), ("GET", "/status")),
        (("whoami",), ("GET", "/whoami")),
        (("changes",), ("GET", "/changes")),
        (("publish", "7"), ("GET", "/changes/7")),
    ],
)
def test_what_answers_in_json_and_isnt_berth_ends_with_3(
    berth: Berth, stub: Stub, arguments: tuple[str, ...], asked: tuple[str, str], body: str
) -> None:
    stub.answer(*asked, body)

    ran = berth(*arguments)

    assert (ran.code, ran.out) == (3, "")
    assert "isn't Berth" in ran.err


def test_a_redirection_with_json_ends_with_3(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/status", {"detail": "moved"}, 302, Location="https://x.org/")

    ran = berth("status")

    assert ran.code == 3
    assert "redirects to https://x.org/" in ran.err


def test_an_answer_that_is_no_plan_is_no_diff_without_a_difference(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text("kind: RuleSet\n")
    stub.answer("POST", "/changes/plan", {"status": "UP"})

    assert berth("diff", str(tmp_path / "web.yaml")).code == 3


def test_problem_details_are_told_in_sentences_with_place_and_remedy(berth: Berth, stub: Stub) -> None:
    faults = [
        {"path": "web.yaml: spec.order", "message": "must be a whole number", "line": 4},
        {"path": "spec.mode", "message": "is none of enforce, shadow, canary"},
    ]
    problem = {"type": "about:blank", "title": "Unprocessable", "status": 422, "detail": "2 faults.", "faults": faults}
    stub.answer("GET", "/status", problem, 422)

    ran = berth("status")

    assert ran.code == 1
    assert ran.err.splitlines() == [
        "2 faults.",
        "web.yaml:4: spec.order: must be a whole number",
        "spec.mode: is none of enforce, shadow, canary",
    ]


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (401, {}, "`berth login` with a new one"),
        (403, {}, "`berth whoami`"),
        (412, {}, "Somebody else changed it first"),
        (429, {"Retry-After": "3600"}, "Try again in 3600 seconds."),
        (500, {"X-Request-ID": "r-1"}, "request=r-1"),
    ],
)
def test_each_refusal_says_what_to_do(
    berth: Berth, stub: Stub, status: int, headers: dict[str, str], said: str
) -> None:
    stub.answer("GET", "/status", {"status": status, "detail": "It is refused.", "faults": []}, status, **headers)

    ran = berth("status")

    assert ran.code == 1
    assert ran.err.startswith("It is refused.\n")
    assert said in ran.err


def test_what_comes_too_often_is_asked_again_after_the_pause_that_the_server_names(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = {"title": "Too Many Requests", "status": 429, "detail": "Too many writes.", "faults": []}
    stub.answer("POST", "/pauses", problem, 429, Retry_After="17")
    pauses: list[float] = []

    def slept(seconds: float) -> None:
        pauses.append(seconds)
        stub.answer("POST", "/pauses", {"change": 7, "revision": 4})

    monkeypatch.setattr(server.time, "sleep", slept)

    ran = berth("pause", "everything", "--reason", "x", "-o", "json")

    assert (ran.code, ran.json["revision"], pauses) == (0, 4, [17])
    assert "retries in 17 s" in ran.err


def test_each_fault_is_told_once(berth: Berth, stub: Stub) -> None:
    faults = [{"path": "spec.order", "message": "is missing"}, {"path": "spec.mode", "message": "is unknown"}]
    detail = "spec.order: is missing spec.mode: is unknown"
    stub.answer("GET", "/status", {"status": 422, "detail": detail, "faults": faults}, 422)

    assert berth("status").err == "spec.order: is missing\nspec.mode: is unknown\n"


def test_what_cant_be_done_as_things_stand_is_not_to_be_repeated(berth: Berth, stub: Stub) -> None:
    said = "It is published. Open another Change to go on from there."
    stub.answer("GET", "/changes/7", {"number": 7, "digest": "abc"}, ETag='"abc"')
    stub.answer("POST", "/changes/7/publish", {"title": "Conflict", "status": 409, "detail": said, "faults": []}, 409)

    ran = berth("publish", "7")

    assert (ran.code, ran.err) == (1, f"{said}\n")


def test_the_token_is_sent_and_is_in_no_message(berth: Berth, stub: Stub) -> None:
    ran = berth("status", "-o", "json")

    assert stub.asked[0]["headers"]["Authorization"] == "Bearer a-token"
    assert ran.code == 1
    assert "a-token" not in ran.out + ran.err


@pytest.mark.parametrize("token", ["hunter2\nhunter2", "hunter2\x00", "hunter2\x7f", "hunter2 hunter2", "hünter2"])
def test_a_token_that_can_be_none_is_refused_before_anything_is_asked_and_not_shown(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    kept = tmp_path / "token"
    kept.write_text(token)
    monkeypatch.delenv("BERTH_TOKEN", raising=False)
    monkeypatch.setenv("BERTH_TOKEN_FILE", str(kept))
    ran = berth("whoami")
    assert ran.code == 1
    assert "copy it again" in ran.err
    assert "nter2" not in ran.err + ran.out
    assert not stub.asked


def test_a_token_is_read_from_a_file(berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    monkeypatch.delenv("BERTH_TOKEN")
    monkeypatch.setenv("BERTH_TOKEN_FILE", str(tmp_path / "token"))

    berth("status")

    assert stub.asked[0]["headers"]["Authorization"] == "Bearer from-a-file"


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_a_token_for_this_machine_goes_to_no_proxy(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, stub.url)

    assert berth("status", "--server", "http://127.0.0.1:1").code == 3

    assert stub.asked == []


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("address", "direct", "is_needed"),
    [
        ("https://berth.example.org", "", True),
        ("https://berth.example.org", "localhost,[::1],fd00::/8,10.0.0.0/8", True),
        ("https://berth.example.org", "fd00::/8, .example.org", False),
        ("https://berth.example.org:8443", "berth.example.org:8443", False),
        ("https://berth.example.org:8443", "*.example.org", False),
        ("https://berth.example.org", "another-berth.example.org,th.example.org,", True),
        ("https://berth.example.org", "localhost,*", False),
        ("https://10.1.2.3:8443", "10.0.0.0/8", False),
        ("https://10.1.2.3:8443", "10.2.0.0/16", True),
        ("https://[fd00::2]", "fd00::/8", False),
        ("https://[fd00::2]:8443", "[fd00::2]", False),
    ],
)
def test_hosts_and_networks_of_no_proxy_need_none(
    monkeypatch: pytest.MonkeyPatch, address: str, direct: str, is_needed: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.org:3128")
    monkeypatch.setenv("NO_PROXY", direct)

    assert places.proxy_of(address) == ("http://proxy.example.org:3128" if is_needed else None)


@pytest.mark.usefixtures("no_proxies")
def test_a_proxy_is_asked_although_no_proxy_names_a_network_of_ipv6(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", stub.url)
    monkeypatch.setenv("NO_PROXY", "localhost,fd00::/8")
    monkeypatch.setenv("BERTH_ALLOW_HTTP", "1")

    berth("status", "--server", "http://berth.example.org")

    assert [each["path"] for each in stub.asked] == ["http://berth.example.org/api/v1/status"]


@pytest.mark.usefixtures("no_proxies", "stub")
@pytest.mark.parametrize("proxy", ["socks5://operator:pass-word@127.0.0.1:1", "socks://127.0.0.1:1", "http://[::1"])
def test_a_proxy_that_cant_be_used_is_named_by_its_variables(
    berth: Berth, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)

    ran = berth("status", "--server", "https://berth.example.org")

    assert ran.code == 1
    assert "HTTPS_PROXY or ALL_PROXY" in ran.err
    assert "pass-word" not in ran.err


def test_no_token_goes_over_the_wire_in_clear(berth: Berth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_SERVER", "http://berth.example.org")

    ran = berth("status")

    assert ran.code == 1
    assert "unencrypted" in ran.err


@pytest.mark.parametrize(
    "server",
    [
        *("berth.example.org", "ftp://x", "https://", "http://[", "https://a:b@x.org"),
        *("https://berth..example.org", "https://xn--a", "https://ex\u202ea.org"),
    ],
)
def test_what_is_no_address_is_said_to_be_none(berth: Berth, server: str) -> None:
    ran = berth("status", "--server", server)

    assert ran.code == 1
    assert "isn't a URL" in ran.err


def test_what_is_too_long_for_an_address_is_refused_in_a_sentence(berth: Berth, stub: Stub) -> None:
    for asked in (("why", "a" * 70_000), ("decisions", f"node={'a' * 70_000}")):
        ran = berth(*asked)

        assert (ran.code, stub.asked) == (1, [])
        assert "The call can't be sent" in ran.err


def test_line_ends_and_blanks_around_an_address_and_the_path_of_rest_count_for_nothing(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answer("GET", "/whoami", {"account": "ann"})
    for written in (f"{stub.url}\n", f" {stub.url}/ ", f"{stub.url}/api/v1", f"{stub.url}/api/v1/"):
        monkeypatch.setenv("BERTH_SERVER", written)
        assert berth("whoami").code == 0


def test_what_it_doesnt_understand_ends_with_1_as_2_is_a_plans(berth: Berth) -> None:
    assert berth("plan").code == 1
    assert berth("no-such-command").code == 1
    assert berth("decisions", "--limit", "0").code == 1


def test_names_from_the_server_dont_steer_a_terminal(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/changes/4", {"number": 4, "state": "draft", "title": "\x1b[2Jgone\u202e"})

    assert berth("changes", "4").out == "Change 4 draft: \\x1b[2Jgone\\x202e\n"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--server", "http://berth", "status"), "--server URL"),
        (("-o", "json", "status"), "-o FORMAT"),
        (("--from-kubeconfig", "status"), "--from-kubeconfig"),
    ],
)
def test_an_option_before_the_command_is_refused_with_its_place(
    berth: Berth, stub: Stub, arguments: tuple[str, ...], option: str
) -> None:
    ran = berth(*arguments)

    assert (ran.code, stub.asked) == (1, [])
    assert f"stands after the command, such as: berth status {option}\n" in ran.err


def test_a_place_in_a_traceback_does_not_show_its_token() -> None:
    assert "geheim" not in repr(Place("https://berth.example", "geheim"))
