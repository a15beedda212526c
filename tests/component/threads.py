"""Acts of several people at the same moment, each in a thread and a connection of its own."""

import threading
from collections.abc import Callable

from django.db import connection

from policies import publishing


def at_once(count: int, act: Callable[[int], object]) -> list[object]:
    """Run `act(index)` in threads that begin together; give their results, refusals among them."""
    barrier, results = threading.Barrier(count), [None] * count

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = act(index)
        except publishing.PublishingError as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results
