"""Sending an answer in pieces, without putting them together."""

import socket
import ssl
from collections.abc import Sequence
from itertools import accumulate

# Pieces for one sendmsg; Linux takes 1024.
_AT_ONCE = 1000


def send_pieces(connection: socket.socket, pieces: Sequence[bytes]) -> None:
    """Send all pieces, in order. The socket's timeout is for each step.

    Raises:
        OSError: the client is gone, or takes nothing within the timeout.
    """
    for start in range(0, len(pieces), _AT_ONCE):
        group = pieces[start : start + _AT_ONCE]
        if len(group) == 1 or isinstance(connection, ssl.SSLSocket):
            # TLS has no way to take pieces: each would become a record of its own.
            connection.sendall(b"".join(group))
        else:
            _send_group(connection, group)


def _send_group(connection: socket.socket, pieces: Sequence[bytes]) -> None:
    sent = connection.sendmsg(pieces)
    ends = list(accumulate(map(len, pieces)))
    begun = 0
    while sent < ends[-1]:
        while ends[begun] <= sent:
            begun += 1
        rest = memoryview(pieces[begun])[sent - ends[begun] :]
        sent += connection.sendmsg([rest, *pieces[begun + 1 :]])
