"""The extender's process keeps memory and doesn't pause, nor does the admin's. Each test in a process of its own: it is changed for good."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, threading
from scheduler.serving.memory import keep_freed_memory

def work():
    for _ in range(3):
        blocks = [bytes(6_000_000) for _ in range(3)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        del blocks
        blocks = [bytes(6_000_000) for _ in range(3)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

if "kept" in sys.argv:
    keep_freed_memory()
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
PAUSES = """
import gc
from scheduler.serving.memory import shorten_pauses
shorten_pauses()
print(gc.get_freeze_count() > 0, gc.get_threshold()[0] > 10_000)
"""
ADMIN = """
import django, gc, os
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
django.setup()
from controlplane.gunicorn_conf import post_worker_init
post_worker_init(None)
print(gc.get_freeze_count() > 100_000, gc.get_threshold()[0] < 10_000)
"""

STACKS = """
import os, threading
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
import django, msgspec
django.setup()

def read():
    try:
        msgspec.json.decode(b"[" * 9_900 + b"]" * 9_900)
    except RecursionError:
        pass
    print(threading.stack_size() >> 20)

thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


def run(program: str, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is no glibc")
def test_what_a_thread_frees_is_used_again() -> None:
    (pages,), (pages_kept,) = run(FAULTS), run(FAULTS, "kept")
    assert int(pages_kept) < 100
    assert int(pages) > 1000


def test_what_lives_for_good_is_out_of_the_collectors_sight() -> None:
    assert run(PAUSES) == ["True", "True"]


def test_what_the_admin_has_loaded_is_out_of_the_collectors_sight_and_no_more_piles_up() -> None:
    assert run(ADMIN) == ["True", "True"]


def test_other_threads_let_a_call_go_on_within_half_a_millisecond() -> None:
    assert run(
        "import sys; from scheduler.serving.pace import switch_often; switch_often(); print(sys.getswitchinterval())"
    ) == ["0.0005"]


def test_threads_have_the_stack_that_reading_takes_where_the_shell_gives_less() -> None:
    """Python 3.13 ended with a segmentation fault there."""
    command = ["bash", "-c", 'ulimit -S -s 1024; exec "$0" -c "$1"', sys.executable, STACKS]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["8"]
