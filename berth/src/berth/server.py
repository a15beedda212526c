"""REST calls to the server, one at a time, with refusals as sentences."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeGuard
from urllib.parse import quote, urlsplit

from berth.errors import AwayError, CommandError, NotReachedError
from berth.places import Place, proxy_of

_API = "/api/v1"
# Long enough for a plan with the gate, which decides on every Pod of a cluster.
_TIMEOUT_SECONDS = 300.0
_CONNECT_SECONDS = 10.0
# The longest total wait of a throttled call: limits are per minute.
_PATIENCE_SECONDS = 300
_MOST_DIGITS = 4
_TOO_LARGE = 413
# Characters of a line that another server said.
_MOST_QUOTED = 300
_TOO_MANY = 429
_SERVER_FAULT = 500
# Messages of OpenSSL 3 and 1.1.
_UNKNOWN_SIGNER = ("self-signed certificate", "self signed certificate", "issuer certificate", "the first certificate")
_ANOTHER_TIME = ("certificate has expired", "certificate is not yet valid")
# The POSTs that change nothing.
_QUESTIONS = tuple(f"{_API}{path}" for path in ("/lint", "/changes/plan", "/assignments/which", "/scenario"))
_MAYBE_DONE = "The server may have done it: look before you repeat it."
_REMEDIES = {
    401: "The token is missing, wrong, expired or revoked: set BERTH_TOKEN, or `berth login` with a new one.",
    403: "`berth whoami` shows what this token may do; its permissions are set in the admin under Tokens.",
    412: "Somebody else changed it first: look at it again, then repeat the command.",
    413: "Divide the files into several calls; with --prune each needs an owner or a scope of its own.",
    429: "Wait for a moment, then repeat the command.",
}


def _httpx() -> Any:
    """Return httpx, without its own command, which takes 0.15 s to load where click is installed."""
    is_there = "click" in sys.modules
    if not is_there:
        sys.modules["click"] = None  # type: ignore[assignment] # what import takes for "not installed"
    try:
        import httpx
    finally:
        if not is_there:
            del sys.modules["click"]
    return httpx


class Server:
    """Calls to one server."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._has_answered = False
        # What to say if the answer to a call that writes can't be read.
        self._told: tuple[str, ...] = ()
        httpx = _httpx()
        headers = {"Accept": "application/json", "User-Agent": "berth-command/0.1"}
        # httpx would refuse such a header later and quote it: the token would be on the terminal and in CI's log.
        if not all("!" <= character <= "~" for character in place.token):
            message = "The token has invalid characters: copy it again."
            raise CommandError(message)
        if place.token:
            headers["Authorization"] = f"Bearer {place.token}"
        self._client = _client(httpx, place, headers)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise NotReachedError if the answer lacks members that each of Berth's answers has.

        Raises:
            NotReachedError: a member is missing, or has another type.
        """
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if not self._has_answered:
                raise
            # It may be a fault of this command, too, so the message has the error, and not only that it isn't Berth.
            message = (
                f"{self.place.server} answers, but the answer can't be read ({type(error).__name__}: {error}): it isn't Berth, or "
                "its version differs from this command's."
            )
            raise NotReachedError(message, *self._told) from error

    def get(self, path: str, /, **query: Any) -> Any:
        """Return the resource at a path; parameters without a value are left out."""
        return self._json(self._call("GET", path, query=query))

    def text(self, path: str, /, **query: Any) -> str:
        """Return the YAML text at a path; another content type is refused."""
        answer = self._call("GET", path, query=query, accept="*/*")
        sent = str(answer.headers.get("Content-Type", ""))
        if not sent.startswith("application/yaml"):
            why = f"it sent {sent or 'nothing'} instead of YAML"
            raise self._something_else(why)
        return str(answer.text)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Any:
        """POST, and return the result."""
        return self._json(self._call("POST", path, body=dict(body or {}), headers=headers))

    def patch(self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Any:
        """PATCH some members, and return the result."""
        return self._json(self._call("PATCH", path, body=dict(body), headers=headers))

    def delete(self, path: str, body: Mapping[str, Any]) -> Any:
        """DELETE, and return the result."""
        return self._json(self._call("DELETE", path, body=dict(body)))

    def tagged(self, path: str) -> tuple[Any, str]:
        """Return the resource at a path, and its ETag."""
        answer = self._call("GET", path)
        return self._json(answer), str(answer.headers.get("ETag", ""))

    def pages(self, path: str, /, **query: Any) -> Iterator[Any]:
        """Yield the rows of a list, page after page."""
        found = self.get(path, **query)
        while True:
            yield from found["results"]
            if not found.get("next"):
                return
            found = self._json(self._call("GET", _without_host(str(found["next"])), is_whole=True))

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        accept: str = "",
        is_whole: bool = False,
    ) -> Any:
        params = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        more = {**(headers or {}), **({"Accept": accept} if accept else {})}
        url = path if is_whole else _API + path
        patience = _PATIENCE_SECONDS
        while True:
            answer = self._answer(method, url, params=params or None, json=body, headers=more)
            if answer.is_success:
                return answer
            pause = _pause_of(answer)
            patience -= pause
            if not pause or patience < 0:
                raise self._refused(answer)
            # A call that is refused in this way was not begun.
            sys.stderr.write(
                f"{self.place.server} refused the call because of too many requests; Berth retries in {pause} s.\n"
            )
            time.sleep(pause)

    def _answer(self, method: str, url: str, **asked: Any) -> Any:
        httpx = _httpx()
        never_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
        writes = _writes(method, url)
        try:
            answer = self._client.request(method, url, **asked)
        except httpx.TimeoutException as error:
            told = f" {_MAYBE_DONE}" if writes and not isinstance(error, never_sent) else ""
            message = f"{self.place.server} didn't answer in time ({method} {url}).{told}"
            raise NotReachedError(message) from error
        except httpx.InvalidURL as error:
            message = f"The call can't be sent: {error}. Shorten the names and filters."
            raise CommandError(message) from error
        except httpx.HTTPError as error:
            said = (str(error) or type(error).__name__).rstrip(".")
            told = _MAYBE_DONE if writes and not isinstance(error, never_sent) else _remedy_of(said)
            message = f"{self.place.server} can't be reached: {said}. {told}"
            raise NotReachedError(message) from error
        self._has_answered = True
        self._told = (_MAYBE_DONE,) if answer.is_success and writes else self._told
        return answer

    def _json(self, answer: Any) -> Any:
        why = "its answer isn't JSON"
        try:
            found = answer.json()
        except (ValueError, RecursionError) as error:
            raise self._something_else(why) from error
        if not isinstance(found, dict):
            why = "its answer isn't a JSON object"
            raise self._something_else(why)
        return found

    def _something_else(self, why: str) -> NotReachedError:
        return NotReachedError(f"{self.place.server} answers, but isn't Berth: {why}.", *self._told)

    def _refused(self, answer: Any) -> CommandError:
        may_be_done = answer.status_code >= _SERVER_FAULT and _writes(answer.request.method, answer.request.url.path)
        try:
            problem = answer.json()
        except (ValueError, RecursionError):
            problem = None
        status = answer.status_code
        if answer.is_redirect or not _is_problem(problem):
            where = f"{self.place.server} answered {status} to {answer.request.method} {answer.request.url.path}"
            if answer.is_redirect:
                where += f", and redirects to {answer.headers.get('Location', 'nowhere')}: use that server's URL"
            # A proxy's own limit is usually below Berth's.
            remedies = [_REMEDIES[status]] if status == _TOO_LARGE else []
            lines = sentences_of(problem, status) if isinstance(problem, dict) and problem else []
            said = [line[:_MOST_QUOTED] for line in lines[:3]]
            if may_be_done:
                remedies.append(_MAYBE_DONE)
            return NotReachedError(f"{where}: it isn't Berth, or a proxy in front of Berth answered.", *said, *remedies)
        lines = sentences_of(problem, status)
        if status == _TOO_MANY and (after := answer.headers.get("Retry-After", "")):
            lines.append(f"Try again in {after} seconds.")
        elif remedy := _REMEDIES.get(status):
            lines.append(remedy)
        if status >= _SERVER_FAULT and (request := answer.headers.get("X-Request-ID", "")):
            lines.append(f"The server's log lines about it have request={request}.")
        if may_be_done:
            lines.append(_MAYBE_DONE)
        return (AwayError if status >= _SERVER_FAULT else CommandError)(*lines, faults=faults_of(problem))


def _writes(method: str, path: str) -> bool:
    return method != "GET" and not path.endswith(_QUESTIONS)


def _without_host(url: str) -> str:
    """Return path and query of a URL from an answer: whatever host it names, this server is called, and no other gets the token."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def _pause_of(answer: Any) -> int:
    """Return how many seconds the server asks to wait before a retry; 0 if it doesn't say."""
    after = str(answer.headers.get("Retry-After", ""))
    is_number = answer.status_code == _TOO_MANY and after.isascii() and after.isdigit() and len(after) <= _MOST_DIGITS
    return int(after) if is_number else 0


def _client(httpx: Any, place: Place, headers: Mapping[str, str]) -> Any:
    """Return the HTTP client.

    Raises:
        CommandError: the address is invalid, or the environment's proxy can't be used.
    """
    try:
        _ = httpx.URL(place.server).host
    except (httpx.InvalidURL, ValueError) as error:
        message = f"{place.server} isn't a URL: write it as https://berth.example.org."
        raise CommandError(message) from error
    verify = _verify(httpx, place)
    try:
        return httpx.Client(
            base_url=place.server,
            headers=headers,
            verify=verify,
            timeout=httpx.Timeout(_TIMEOUT_SECONDS, connect=_CONNECT_SECONDS),
            # A redirect could send the token to another server.
            follow_redirects=False,
            # httpx's own reading of the environment fails at a network of IPv6 in NO_PROXY.
            proxy=proxy_of(place.server),
            trust_env=False,
        )
    except (httpx.InvalidURL, ImportError, ValueError) as error:
        # The message omits the proxy's URL, which may have a password.
        message = (
            f"The proxy that HTTPS_PROXY or ALL_PROXY names can't be used ({type(error).__name__}): write it as "
            "http://proxy.example.org:3128, or unset them with `env -u ALL_PROXY -u all_proxy berth …`."
        )
        raise CommandError(message) from error


def _verify(httpx: Any, place: Place) -> Any:
    import ssl

    if place.server.startswith("http:"):
        # Trusts no certificates, and takes no time: reading the usual ones takes 0.1 s.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not place.certificates:
        # httpx would fail, with an error that names no file, where one of these names something that isn't there.
        if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
            return ssl.create_default_context()
        # A machine may lack the public authorities that httpx brings; a company's own authority is only among the system's.
        context = httpx.create_ssl_context()
        context.load_default_certs()
        return context
    try:
        return ssl.create_default_context(cafile=place.certificates)
    except (OSError, ssl.SSLError) as error:
        message = f"{place.certificates} holds no certificates (BERTH_CA_FILE, or the file that `berth login` stored): {error}."
        raise CommandError(message) from error


def _remedy_of(said: str) -> str:
    """Return what to do if no answer came. For a refused certificate, TLS reports an unknown signer or an expired certificate."""
    if any(words in said for words in _UNKNOWN_SIGNER):
        return (
            "Name the CA file that verifies the server's certificate: BERTH_CA_FILE, or `berth login --ca-file FILE`."
        )
    if any(words in said for words in _ANOTHER_TIME):
        return "Renew the certificate, or set this machine's clock."
    return "Is it running, and is this its address (--server, BERTH_SERVER, `berth login`)?"


def _is_problem(found: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether this is one of Berth's errors, which all have a list of faults. Other servers have `detail` and `title`, too."""
    return isinstance(found, dict) and isinstance(found.get("faults"), list)


def faults_of(problem: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the faults of problem details."""
    found = problem.get("faults")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def sentences_of(problem: Mapping[str, Any], status: int) -> list[str]:
    """Return problem details (RFC 9457) as lines: the summary, then each fault with its place."""
    faults = [fault_line(each) for each in faults_of(problem)]
    said = str(problem.get("detail") or problem.get("error") or problem.get("title") or "")
    if not said and not faults:
        said = "; ".join(f"{name}: {value}" for name, value in problem.items()) or f"The server answered {status}."
    # A summary that only repeats the faults is left out.
    whole = [] if said in (*faults, "\n".join(faults), " ".join(faults)) else said.splitlines()
    return [*whole, *(line for line in faults if line not in whole)]


def fault_line(fault: Mapping[str, Any]) -> str:
    """Return a fault in the format that editors read: file:line: path: message."""
    if fault.get("text"):
        return str(fault["text"])
    file, path = str(fault.get("file") or ""), str(fault.get("path") or "")
    if not file and fault.get("line"):
        # In the answer to a call with several files, the file is before the path.
        file, _, path = path.partition(": ")
    place = f"{file}:{fault['line']}" if file and fault.get("line") else file
    parts = [place, path, str(fault.get("message") or "")]
    return ": ".join(part for part in parts if part)


def path_of(*parts: str) -> str:
    """Return a URL path of these parts, each quoted as one segment."""
    return "".join(f"/{_quoted(part)}" for part in parts)


def _quoted(part: str) -> str:
    # Clients and proxies resolve the segments . and .. and call the URL above.
    return part.replace(".", "%2E") if part in {".", ".."} else quote(part, safe="")
