"""A receiver of webhooks in another process, which does what receivers do: accept, fail, hang, redirect to a private address.

`python -m tests.receiver FOLDER SECRET [CERTIFICATE]` listens on 127.0.0.1, and on 127.0.0.2, where nothing may arrive. It writes its ports
into FOLDER/ports, and a line of JSON for each request into FOLDER/taken or FOLDER/forbidden. FOLDER/mode has its next act. With a
certificate (PEM, with its key) it uses TLS.
"""

import hashlib
import hmac
import json
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Longer than any sender waits.
_HANGS = 30.0


def is_genuine(header: str, body: bytes, secret: str) -> bool:
    """Return whether a signature is valid, as in docs/howto/webhooks.md, without the check of the time's age."""
    fields = dict(part.split("=", 1) for part in header.split(","))
    expected = hmac.new(secret.encode(), fields["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, fields["v1"])


def _handler(folder: Path, secret: str, log: str, forbidden: str) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Keep stderr quiet."""

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            mode = (folder / "mode").read_text().strip()
            self._note(mode, body)
            if mode == "hang":
                time.sleep(_HANGS)
                return
            if mode == "mumble":
                self.wfile.write(b"ERR no hook " + self.path.encode() + b"\r\n\r\n")
                return
            if mode == "leave":
                return
            status = {"fail": 503, "busy": 429, "redirect": 302, "quote": 404, "shorten": 404, "move": 301}.get(
                mode, 200
            )
            words = {
                "fail": b"I am ill",
                "quote": b"Cannot POST " + self.path.encode(),
                "shorten": b"No hook " + self.path[:16].encode() + b"... here",
                "babble": b"a\0b" + b"x" * 10_000,
            }
            said = words.get(mode, b"ok")
            self.send_response(status)
            if mode == "busy":
                self.send_header("Retry-After", "120")
            if mode == "redirect":
                self.send_header("Location", forbidden)
            if mode == "move":
                self.send_header("Location", f"https://127.0.0.1{self.path}/")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def _note(self, mode: str, body: bytes) -> None:
            line = {
                "mode": mode,
                "host": self.headers.get("Host"),
                "delivery": self.headers.get("Berth-Delivery"),
                "genuine": is_genuine(self.headers.get("Berth-Signature", "t=,v1="), body, secret),
                "body": json.loads(body or b"null"),
            }
            with lock, (folder / log).open("a") as file:
                file.write(json.dumps(line) + "\n")

    return Handler


def main() -> None:
    folder, secret, *certificate = Path(sys.argv[1]), *sys.argv[2:]
    (folder / "mode").write_text("ok")
    forbidden = ThreadingHTTPServer(("127.0.0.2", 0), _handler(folder, secret, "forbidden", ""))
    where = f"http://127.0.0.2:{forbidden.server_address[1]}/secret"
    allowed = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder, secret, "taken", where))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate[0])
        # Each connection does its own handshake, so that a client that refuses it doesn't block others.
        allowed.socket = context.wrap_socket(allowed.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=forbidden.serve_forever, daemon=True).start()
    ready = folder / "ports.new"
    ready.write_text(f"{allowed.server_address[1]} {forbidden.server_address[1]}")
    ready.rename(folder / "ports")
    allowed.serve_forever()


if __name__ == "__main__":
    main()
