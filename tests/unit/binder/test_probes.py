"""The probes of the process that schedules."""

import urllib.error
import urllib.request

from scheduler.binder.probes import Probes
from tests.stack import free_port


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_say_what_is_missing_and_whether_the_process_gets_round() -> None:
    missing, alive, port = ["Revision"], [True], free_port()
    probes = Probes(f"127.0.0.1:{port}", lambda: missing, lambda: alive[0])
    probes.start()

    assert asked(port, "/readyz") == (503, '{"ok": false, "missing": ["Revision"]}')
    missing.clear()
    assert asked(port, "/readyz")[0] == 200
    assert asked(port, "/livez") == (200, "ok\n")
    alive[0] = False
    assert asked(port, "/livez")[0] == 503
    assert "berth_binder_leader" in asked(port, "/metrics")[1]
    assert asked(port, "/else")[0] == 404
    probes.stop()
