"""A listener's WSGI environ, and closing a listener without losing connections."""

import ctypes
import os
import socket
import struct
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

# asm-generic/socket.h; Python's socket has no names for them.
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_SYN = 0x02
_OFFSET_OF_TCP_FLAGS = 13
# Classic BPF over the TCP header (linux/filter.h struct sock_filter: code, jump if true, jump if false, constant).
_PROGRAM = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, _OFFSET_OF_TCP_FLAGS),  # load the byte
        (0x45, 0, 1, _SYN),  # has it the bit?
        (0x06, 0, 0, 0),  # yes: drop
        (0x06, 0, 0, 0xFFFFFFFF),  # no: keep
    )
)
_INSTRUCTION_BYTES = 8


def refuse_beginnings(listener: socket.socket) -> None:
    """Ask the kernel to drop the first packet of new connections; handshakes that have begun are finished.

    A client sends that packet again after a second. By then the listener is closed, and the client is refused. Without this, a
    connection that is made between the last accept and the close is reset. The filter is permanent, for every process
    that shares the listener. Linux only; elsewhere, or if the kernel refuses it, nothing happens.
    """
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(_PROGRAM, len(_PROGRAM))
    filters = struct.pack("HP", len(_PROGRAM) // _INSTRUCTION_BYTES, ctypes.addressof(program))
    # Some kernels refuse it to unprivileged processes, for example when the machine's BPF programs exceed bpf_jit_limit.
    with suppress(PermissionError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filters)


def take_beginnings(listener: socket.socket) -> None:
    """Take new connections again where a process before this one refused them: it was ended alone, and its master goes on."""
    if sys.platform == "linux":
        with suppress(OSError):  # most often there is nothing to be taken off
            listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def is_shared(master: int) -> bool:
    """Return whether another child of `master` shares its listeners: a new worker (SIGHUP) or a new master (SIGUSR2)."""
    try:
        children = Path(f"/proc/{master}/task/{master}/children").read_text(encoding="ascii").split()
    except OSError:
        return False
    return bool(set(children) - {str(os.getpid())})


def base_environ(listener: socket.socket, scheme: str = "http") -> dict[str, Any]:
    """Return the part of the WSGI environ that all requests on a listener share."""
    host, port, *_ = listener.getsockname()
    return {
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
