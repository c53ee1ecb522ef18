"""The web server of the viewer: viser's, on loopback, for pages of its own address only.

viser lets any page connect, takes another port where the wanted one is taken, and can open a tunnel to the internet on
request of a page. None of that is wanted here: a page of another origin gets 403, a port in use is an error, and there
is no tunnel.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import viser

INSTALL = "the viewer in the browser needs viser: pip install 'backdrive[view]'"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
FIRST_PORT, PORTS = 8080, 100
"""Without a port: the first free one of these."""

_starting = threading.Lock()


def load_viser() -> Any:
    """The module viser, or a message that says what to install."""
    try:
        import viser
        import viser.infra
    except ImportError as error:
        raise ImportError(INSTALL) from error
    return viser


class Origins:
    """Which pages may connect: those that this server itself has served, and those that the user names.

    A browser sends the origin of the page (scheme, host, port) with every connection; programs that are not browsers
    send none, and may connect. The host must be a name of this machine, so that a foreign name that someone points at
    this address does not help.
    """

    def __init__(self, host: str, port: int, more: Sequence[str] = ()) -> None:
        self._hosts, self._port = {*LOOPBACK, host}, port
        self._everywhere = host in EVERYWHERE
        if self._everywhere:
            self._hosts.add(socket.gethostname())
        self._more = {origin.rstrip("/").lower() for origin in more}

    def allow(self, origin: str | None) -> bool:
        if origin is None or origin.lower() in self._more:
            return True
        try:
            parts = urlsplit(origin)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        return parts.scheme == "http" and port == self._port and (host in self._hosts or self._is_address(host))

    def _is_address(self, host: str) -> bool:
        if not self._everywhere:
            return False
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(host))
        return False


def start(host: str, port: int | None, origins: Sequence[str], label: str) -> viser.ViserServer:
    """A running server; port None: a free one."""
    viser = load_viser()
    chosen = _free_port(host) if port is None else _checked(host, port)
    with _starting, _quiet(), _guarded(Origins(host, chosen, origins), chosen) as guards:
        server = viser.ViserServer(host=host, port=chosen, label=label, verbose=False)
    if server.get_port() != chosen or not guards:
        stop(server)
        if not guards:  # a viser that starts its server in another way
            raise RuntimeError(f"viser {viser.__version__} cannot be restricted to its own pages: use viser 1.1")
        raise OSError(_in_use(host, chosen))
    from viser import _messages

    for message in (_messages.ShareUrlRequest, _messages.ShareUrlDisconnect):
        server._websock_server.unregister_handler(message)
    server.gui.configure_theme(show_logo=False, show_share_button=False, control_width="small")
    server.gui.main_panel.dock_right()  # beside the picture, not over it
    return server


def stop(server: viser.ViserServer) -> None:
    """Stop a server and close its pages' connections."""
    with _quiet():
        server.stop()


def address(server: viser.ViserServer) -> str:
    """The address to open in a browser."""
    host = server.get_host()
    if host in EVERYWHERE:
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{server.get_port()}"


def _in_use(host: str, port: int) -> str:
    return (
        f"port {port} on {host} is in use: close what uses it (another viewer? viewer.close()), or give another port, "
        "or port=None for a free one"
    )


def _checked(host: str, port: int) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError(f"port must be a number from 1 to 65535, or None for a free one, got {port!r}")
    try:
        _try_bind(host, port)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise ValueError(f"host {host!r} is no address of this machine") from error
        raise OSError(error.errno, _in_use(host, port) if _is_taken(error) else f"{host}:{port}: {error}") from error
    return port


def _free_port(host: str) -> int:
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        with contextlib.suppress(OSError):
            _try_bind(host, port)
            return port
    return _try_bind(host, 0)  # raises what is wrong with the host


def _try_bind(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a closed one leaves no trace
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _is_taken(error: OSError) -> bool:
    import errno

    return error.errno in (errno.EADDRINUSE, errno.EACCES)


@contextlib.contextmanager
def _guarded(origins: Origins, port: int) -> Iterator[list[int]]:
    """Servers on that port that are started meanwhile refuse foreign origins; yields the list of their ports."""
    import websockets.asyncio.server as websockets
    from websockets.http11 import Response

    serve, guarded = websockets.serve, []

    def refuse(connection: Any, request: Any) -> Response | None:
        origin = request.headers.get("Origin")
        if re.fullmatch("websocket", request.headers.get("Upgrade", ""), re.IGNORECASE) and not origins.allow(origin):
            answer = connection.respond(403, f"this viewer serves no pages of {origin}\n")
            return answer if isinstance(answer, Response) else None
        return None

    def guarded_serve(handler: Any, host: Any, at: Any, *, process_request: Any = None, **options: Any) -> Any:
        if at != port:
            return serve(handler, host, at, process_request=process_request, **options)
        guarded.append(at)
        return serve(handler, host, at, process_request=_first(refuse, process_request), **options)

    websockets.serve = guarded_serve  # type: ignore[assignment, misc]
    try:
        yield guarded
    finally:
        websockets.serve = serve  # type: ignore[misc]


def _first(check: Callable[..., Any], then: Callable[..., Any] | None) -> Callable[..., Any]:
    """A handler of requests that asks `check` first."""

    def process(connection: Any, request: Any) -> Any:
        answer = check(connection, request)
        return answer if answer is not None or then is None else then(connection, request)

    return process


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """viser prints a table when it starts and a line when it stops."""
    import rich

    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before
