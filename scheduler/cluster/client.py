"""Requests to the API server, as raw bytes. The only module that imports `kubernetes`.

The kubernetes package loads configuration and credentials (including those that must be renewed) and makes the
urllib3 pool. Nothing else of it is used: its models and its watch are slow and have faults (docs/adr/0004-kubernetes-client.md).
Functions import it when they need it: that takes as long as importing Django, and most commands call no API server.
This module doesn't interpret the bytes, except in the few convenience functions at the end.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
import yaml
from django.conf import settings
from urllib3.util.ssl_ import create_urllib3_context

from scheduler.cluster.errors import (
    APIConfigurationError,
    APIConflictError,
    APIError,
    APIInvalidError,
    APITimeoutError,
    APIUnavailableError,
    error_of_answer,
)
from scheduler.cluster.nesting import bounded

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0
# The same for calls that somebody waits for, at a page or a command.
ASK_TIMEOUT_SECONDS = 5.0
POOL_SIZE = 32
PAGE_SIZE = 500
# How long an Authorization header is used before it is read from the kubernetes package again.
CREDENTIALS_KEPT_SECONDS = 10.0

# Never reached through a proxy from the environment, as in Go's clients and so in kubectl.
LOOPBACK = "localhost,127.0.0.0/8,::1"

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"
UID_FIELD = "metadata.uid"
# The field selector of Pods without a node.
PENDING_SELECTOR = "spec.nodeName=,status.phase=Pending"

Query = Mapping[str, str]
T = TypeVar("T")


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()


class _PodPage(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]] | None = None


class OwnSocket(NamedTuple):
    """A dedicated connection to the API server.

    Attributes:
        socket: with TLS if the API server uses it.
        host: the value of the Host header.
        prefix: the prefix of each path: part of `server` in the kubeconfig if a gateway serves several clusters at one
            address; usually "".
    """

    socket: socket.socket
    host: str
    prefix: str


class _CredentialsError(OSError):
    """The kubernetes package can't renew credentials."""


class _Access:
    """One loaded configuration, its connections, and the current Authorization header."""

    def __init__(self, configuration: "Configuration") -> None:
        from kubernetes.client.rest import RESTClientObject

        self.host = configuration.host
        self.pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self.pool.connection_pool_kw["ssl_context"] = _tls(configuration)
        self.loaded_at = time.monotonic()
        self._configuration = configuration
        self._lock = Lock()
        self._header: str | None = None
        self._header_at = float("-inf")

    def authorization(self) -> str | None:
        """Return the Authorization header, which the kubernetes package renews when needed."""
        with self._lock:
            if time.monotonic() - self._header_at > CREDENTIALS_KEPT_SECONDS:
                self._header = self._read_header()
                self._header_at = time.monotonic()
            return self._header

    def _read_header(self) -> str | None:
        from kubernetes.config import ConfigException

        try:
            header: str | None = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except ConfigException as error:
            raise _CredentialsError(str(error)) from error
        return header


def _tls(configuration: "Configuration") -> ssl.SSLContext:
    """Return the SSLContext that checks certificates; urllib3 adds the configuration's own settings.

    From Python 3.13 on, urllib3 refuses certificates without an Authority Key Identifier (RFC 5280). Those of many clusters have
    none, and Go's clients accept them.
    """
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.ssl_ca_cert and not configuration.ca_cert_data:
        context.load_default_certs()
    return context


class LineStream(Iterator[bytes]):
    """The lines of a streaming response. One thread iterates; any other may `abort` it.

    Iteration ends when the server ends the response, or after `abort`; it raises APITimeoutError when nothing
    arrived for `read_timeout` seconds, and APIUnavailableError when the connection broke. A last line without
    a line feed is never yielded: a broken connection cuts lines short.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, *, context: str) -> None:
        self._response = response
        self._context = context
        self._aborted = False
        # When the current line arrived from the server.
        self.received_at = time.monotonic()
        self._lines = self._read()

    def __next__(self) -> bytes:
        return next(self._lines)

    def _read(self) -> Iterator[bytes]:
        rest = b""
        try:
            for chunk in self._response.stream(None, decode_content=False):
                # Data read while `abort` closes the connection is raw TLS: the shutdown removes the TLS layer first.
                if self._aborted:
                    return
                self.received_at = time.monotonic()
                lines = (rest + chunk if rest else chunk).split(b"\n")
                rest = lines.pop()
                yield from map(bounded, lines)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # ValueError: what ssl raises when `abort` shut the socket between two reads.
            if not self._aborted:
                raise _fault(error, self._context) from error
        finally:
            # Part of a response may be left on the connection, so it is never reused.
            self._response.close()

    def abort(self) -> None:
        """End the iteration now, from any thread, even while it waits for data."""
        self._aborted = True
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            return  # The iteration had ended already.

    def close(self) -> None:
        """Close the connection; only for the thread that iterates."""
        self._response.close()


class Client:
    """Requests to one API server. May be used by any number of threads.

    Every method raises an APIError, whose class depends on the HTTP status. Nothing is retried here, except once
    after a 401, which means that nothing was done and that the credentials should be read again.
    """

    def __init__(self, *, load: "Callable[[], Configuration]", source: str, pool_size: int = POOL_SIZE) -> None:
        """Note how to load the configuration; it is loaded on first use. See `connect`.

        Args:
            load: returns a new configuration; called again when credentials are refused.
            source: where it is looked for, as words that follow "configuration".
            pool_size: connections that are kept open; more are made when needed.
        """
        self._load = load
        self._source = source
        self._pool_size = pool_size
        self._lock = Lock()
        self._access: _Access | None = None

    @classmethod
    def connect(cls, kubeconfig: Path | str | None, *, pool_size: int = POOL_SIZE) -> "Client":
        """Make a client; neither the API server nor the file need exist yet.

        Without a usable configuration, every call raises APIConfigurationError, and the next call tries to load it again.

        Args:
            kubeconfig: a kubeconfig file (its current context is used); None, the default of BERTH_KUBECONFIG, means the
                in-cluster configuration.
            pool_size: connections that are kept open; each watch holds one.
        """

        def load() -> "Configuration":
            from kubernetes import config
            from kubernetes.client.configuration import Configuration

            configuration = Configuration()
            if not kubeconfig:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # not annotated there
            else:
                config.load_kube_config(  # type: ignore[no-untyped-call]  # not annotated there
                    config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
                )
            return configuration

        source = f" in {kubeconfig}" if kubeconfig else ": BERTH_KUBECONFIG names none, and this is no Pod"
        return cls(load=load, source=source, pool_size=pool_size)

    def _new_access(self) -> _Access:
        from kubernetes.config import ConfigException
        from kubernetes.utils.keepalive import tcp_keepalive_socket_options

        try:
            configuration = self._load()
        except (ConfigException, yaml.YAMLError, OSError, LookupError, TypeError, ValueError) as error:
            message = f"no usable Kubernetes configuration{self._source}: {' '.join(str(error).split())}"
            raise APIConfigurationError(message) from error
        configuration.connection_pool_maxsize = self._pool_size
        configuration.retries = False
        # A peer that disappeared silently is noticed after about 25 s.
        configuration.socket_options = tcp_keepalive_socket_options(idle=10, interval=5, count=3)
        configuration.no_proxy = ",".join(filter(None, (configuration.no_proxy, LOOPBACK)))
        return _Access(configuration)

    def _current(self) -> _Access:
        access = self._access
        if access is None:
            with self._lock:
                access = self._access = self._access or self._new_access()
        return access

    def _doubt(self, access: _Access) -> None:
        """Let the next call read the configuration again after a broken connection: the server may have moved."""
        with self._lock:
            if self._access is access and time.monotonic() - access.loaded_at > CREDENTIALS_KEPT_SECONDS:
                self._access = None

    def _renewed(self, refused: _Access) -> _Access | None:
        """Reload the configuration after a 401; None if it was just reloaded."""
        with self._lock:
            if self._access is refused:
                if time.monotonic() - refused.loaded_at < CREDENTIALS_KEPT_SECONDS:
                    return None
                self._access = self._new_access()
                refused.pool.clear()
            return self._access

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        access = self._current()
        while True:
            headers = {"Accept": JSON, "User-Agent": "berth"}
            if content_type is not None:
                headers["Content-Type"] = content_type
            context = f"{method} {path}"
            try:
                if authorization := access.authorization():
                    headers["Authorization"] = authorization
                response = access.pool.urlopen(
                    method,
                    f"{access.host}{path}?{urlencode(query)}" if query else access.host + path,
                    body=body,
                    headers=headers,
                    timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=read_timeout),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                )
                if response.status < HTTPStatus.MULTIPLE_CHOICES:
                    return response
                answer = response.read()
            except (urllib3.exceptions.HTTPError, OSError) as error:
                self._doubt(access)
                raise _fault(error, context) from error
            if response.status == HTTPStatus.UNAUTHORIZED and (renewed := self._renewed(access)) is not None:
                access = renewed
                continue
            raise error_of_answer(
                status=response.status,
                body=answer,
                retry_after=response.headers.get("Retry-After"),
                context=context,
            )

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> bytes:
        response = self._open(
            method, path, query=query, body=body, content_type=content_type, read_timeout=timeout_seconds
        )
        try:
            return bounded(response.read())
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise _fault(error, f"{method} {path}") from error

    def open_socket(self) -> OwnSocket:
        """Open a dedicated connection for a caller that writes its own requests. Through a proxy it is a tunnel, like all others.

        Raises:
            APIError: the API server can't be reached, or only through a proxy whose tunnel isn't a plain socket.
        """
        access = self._current()
        context, address = "connecting", urlsplit(access.host)
        proxy = access.pool.proxy if isinstance(access.pool, urllib3.ProxyManager) else None
        if proxy is not None and (address.scheme, proxy.scheme) != ("https", "http"):
            message = f"{context}: a proxy is only gone through by http:// and to an API server with https://"
            raise APIConfigurationError(message)
        try:
            pool: Any = access.pool.connection_from_url(access.host)
            connection: Any = pool._new_conn()  # noqa: SLF001 - the one place where urllib3 puts credentials and TLS together
            connection.timeout = CONNECT_TIMEOUT_SECONDS
            if proxy is None:
                connection.connect()
            else:
                pool._prepare_proxy(connection)  # noqa: SLF001 - the same, with the tunnel
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._doubt(access)
            raise _fault(error, context) from error
        opened: socket.socket = connection.sock
        # urllib3 closes the socket of a connection that is garbage-collected.
        connection.sock = None
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return OwnSocket(opened, address.netloc, address.path.rstrip("/"))

    def authorization(self) -> str | None:
        """Return the current Authorization header; None without one.

        Raises:
            APIError: the credentials can't be loaded.
        """
        try:
            return self._current().authorization()
        except OSError as error:
            raise _fault(error, "credentials") from error

    def get(self, *, path: str, query: Query | None = None, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> bytes:
        """Read one object, or one page of a list.

        Args:
            path: from the root: "/api/v1/nodes/n1". Names in it need no quoting: Kubernetes' names never do.
            query: unquoted parameters.
            timeout_seconds: how long the server may be silent.
        """
        return self._send("GET", path, query=query, timeout_seconds=timeout_seconds)

    def list_pages(self, *, path: str, query: Query | None = None, limit: int = PAGE_SIZE) -> Iterator[bytes]:
        """Iterate over the pages of a list, each a list object of at most `limit` items.

        Raises:
            APIGoneError: the continue token of the next page has expired; list again.
        """
        token = ""
        while True:
            parameters = {**(query or {}), "limit": str(limit)} | ({"continue": token} if token else {})
            page = self.get(path=path, query=parameters)
            yield page
            token = decoded(page, type_=_Page, context=f"GET {path}").metadata.continue_
            if not token:
                return

    def stream(self, *, path: str, query: Query, read_timeout: float) -> LineStream:
        """Open a watch and return its lines, each one JSON object.

        Args:
            path: of the collection: "/api/v1/pods".
            query: with `watch` and `timeoutSeconds`.
            read_timeout: seconds the server may be silent. Bookmarks come about every 60 s.
        """
        response = self._open("GET", path, query=query, read_timeout=read_timeout)
        return LineStream(response, context=f"GET {path} (watch)")

    def post(
        self, *, path: str, body: bytes, query: Query | None = None, timeout_seconds: float = READ_TIMEOUT_SECONDS
    ) -> bytes:
        """Create an object, or post to a subresource."""
        return self._send("POST", path, query=query, body=body, content_type=JSON, timeout_seconds=timeout_seconds)

    def put(self, *, path: str, body: bytes, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> bytes:
        """Replace an object. If `body` has a resourceVersion, only if the object hasn't changed meanwhile."""
        return self._send("PUT", path, body=body, content_type=JSON, timeout_seconds=timeout_seconds)

    def patch(
        self,
        *,
        path: str,
        body: bytes,
        content_type: str,
        query: Query | None = None,
        timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> bytes:
        """Change an object. `content_type` is MERGE_PATCH or another patch type of Kubernetes.

        Raises:
            APIConflictError: also if the UID in `body` isn't the object's. The object was not changed.
        """
        try:
            return self._send(
                "PATCH", path, query=query, body=body, content_type=content_type, timeout_seconds=timeout_seconds
            )
        except APIInvalidError as error:
            if UID_FIELD not in error.fields:
                raise
            # kube-apiserver v1.36.3 answers a patch with another UID by 422, "field is immutable".
            message = f"PATCH {path}: another object has this name"
            raise APIConflictError(message, status=error.status, reason=error.reason) from error

    def delete(self, *, path: str, body: bytes | None = None, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> bytes:
        """Delete an object; `body` is a DeleteOptions, which may have the UID as a precondition."""
        content_type = JSON if body is not None else None
        return self._send("DELETE", path, body=body, content_type=content_type, timeout_seconds=timeout_seconds)

    def list_pods(
        self, *, field_selector: str = "", on_page: Callable[[], None] = lambda: None
    ) -> list[dict[str, Any]]:
        """Read the matching Pods of all namespaces, as decoded JSON (without kind and apiVersion).

        `on_page` is called after each page.
        """
        path = "/api/v1/pods"
        query = {"fieldSelector": field_selector} if field_selector else {}
        pods: list[dict[str, Any]] = []
        for page in self.list_pages(path=path, query=query):
            pods += decoded(page, type_=_PodPage, context=f"GET {path}").items or ()
            on_page()
        return pods

    def patch_pod_annotations(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        annotations: Mapping[str, str | None],
        resource_version: str = "",
        timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """Set annotations of the Pod with this UID (None removes one) and return the updated Pod.

        With a resource version, only if the Pod still has it.

        Raises:
            APIConflictError: another Pod has this name now, or the Pod changed meanwhile. It was not modified.
            APINotFoundError: no Pod has this name.
        """
        path = pod_path(namespace, name)
        metadata = {"uid": uid, "annotations": annotations}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        body = msgspec.json.encode({"metadata": metadata})
        answer = self.patch(path=path, body=body, content_type=MERGE_PATCH, timeout_seconds=timeout_seconds)
        return decoded(answer, type_=dict[str, Any], context=f"PATCH {path}")


def connect() -> Client:
    """Return a client for the scheduled cluster; as with `Client.connect`, nothing is asked yet."""
    return Client.connect(settings.BERTH.kubeconfig)


def pending_pods(client: Client, on_page: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """Read the Pods without a node, as decoded JSON. `on_page` is called after each page."""
    return client.list_pods(field_selector=PENDING_SELECTOR, on_page=on_page)


def pod_path(namespace: str, name: str) -> str:
    """Return a Pod's path. Names of strangers are checked before, see `scheduler.cluster.bind.is_name`."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def decoded(answer: bytes, *, type_: type[T], context: str) -> T:
    """Return an answer of the API server; `context` says what was asked for.

    Raises:
        APIUnavailableError: it isn't of this type.
    """
    try:
        return msgspec.json.decode(answer, type=type_)
    except msgspec.DecodeError as error:
        message = f"{context}: the answer isn't what Kubernetes gives: {error}"
        raise APIUnavailableError(message) from error


def _fault(error: Exception, context: str) -> APIError:
    kind = APITimeoutError if isinstance(error, urllib3.exceptions.ReadTimeoutError) else APIUnavailableError
    return kind(f"{context}: {error}")
