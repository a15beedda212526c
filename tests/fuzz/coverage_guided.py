"""What strangers reach, under libFuzzer: `python -m tests.fuzz.coverage_guided RUNS`, each reader in processes of its own.

Heads, bodies in chunks, forms, query strings, documents and quantities (`documents`), and what kube-scheduler's bodies hold (`decoders`).
Inputs are changed so that new lines are reached of Berth, h11 and django.http; msgspec and Python's own decoding aren't seen. They are
bytes in one process (`bytes`), and for kube-scheduler's JSON choices of the strategy that damages it in another (`documents`). A crash, 20 s
for one input, or more than a gigabyte in all ends it, with the input in a file `crash-…`, `timeout-…` or `oom-…`.
"""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from hypothesis import given, settings

# A document takes so much longer to make than bytes do.
RUNS_FOR_EACH_DOCUMENT = 20


def fuzz(name: str, inputs: str, runs: int) -> None:
    """Run one reader; doesn't return."""
    import atheris
    import django

    with atheris.instrument_imports(include=["policies", "scheduler", "django.http", "h11"]):
        django.setup()  # forms need it
        from tests.fuzz.decoders import DECODERS, SECRET, Decoder, refused
        from tests.fuzz.documents import READERS, read_or_refuse
    from tests.fuzz.mutations import FRAGMENTS, damaged

    reader = next(found for found in (*DECODERS, *READERS) if found.name == name)

    def read(body: bytes) -> None:
        if not isinstance(reader, Decoder):
            read_or_refuse(reader, body)
            return
        message = refused(reader, body)
        if SECRET in message or not message.isprintable():
            error = "a refusal quotes the body"
            raise AssertionError(error)

    @settings(deadline=None, database=None)
    @given(damaged(reader.seeds))
    def read_damaged(body: bytes) -> None:
        read(body)

    folder = Path(tempfile.mkdtemp(prefix="berth-fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    options = [f"-runs={runs}", "-timeout=20", "-rss_limit_mb=1024", "-max_len=8192", "-print_final_stats=1"]
    if inputs == "bytes":
        for index, seed in enumerate(reader.seeds):
            (corpus / str(index)).write_bytes(seed)
        words = folder / "words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in FRAGMENTS if 0 < len(word) < 60))
        options.append(f"-dict={words}")
    else:
        options.append("-len_control=0")  # short inputs are no choices at all
    target = read if inputs == "bytes" else read_damaged.hypothesis.fuzz_one_input
    atheris.Setup([sys.argv[0], *options, str(corpus)], target)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def main() -> int:
    """Run all readers; one of them when the process is one that this started."""
    if len(sys.argv) > 2:
        name, inputs, runs = sys.argv[1:]
        fuzz(name, inputs, int(runs))
    if find_spec("atheris") is None:
        print("atheris has no build for this machine: all is fuzzed by hypothesis only")
        return 0
    from tests.fuzz.decoders import DECODERS
    from tests.fuzz.documents import READERS

    runs = int(sys.argv[1])
    asked = [(reader.name, "bytes", runs) for reader in (*DECODERS, *READERS)]
    asked += [(decoder.name, "documents", runs // RUNS_FOR_EACH_DOCUMENT) for decoder in DECODERS]
    for name, inputs, count in asked:
        print(f"{name}: {count} {inputs}", flush=True)
        command = [sys.executable, "-m", "tests.fuzz.coverage_guided", name, inputs, str(count)]
        if code := subprocess.run(command, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
