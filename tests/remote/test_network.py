"""A process serves a directory over TCP: by its token, and beyond loopback with TLS."""

from __future__ import annotations

import os
import socket
import ssl
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import fmq
from fmq.errors import BadOption, FmqError, NotAllowed, NotServed, ProtocolError
from fmq.wire.frames import VERSION, Frame, Op, Splitter, frame
from fmq.wire.network import parse_address
from fmq.wire.processes import is_allowed
from fmq.wire.values import encode_values
from tests.machine import NEEDS_IPV6, NEEDS_LOCALHOST

TLS = Path(__file__).parent.parent / "data" / "tls"
CERTIFICATE, KEY = str(TLS / "cert.pem"), str(TLS / "key.pem")


def token_in(path: Path, text: str = "ab" * 32, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def port_of(serving: fmq.Serving) -> int:
    (port,) = [address[1] for address in serving.addresses if isinstance(address, tuple)]
    return int(port)


def test_the_socket_of_a_directory_is_named_by_its_path(tmp_path: Path) -> None:
    """It is made under another name, which says nothing to a reader of `fmq serve`."""
    with fmq.open(tmp_path / "d") as engine, engine.serve() as serving:
        assert serving.addresses == [str(tmp_path / "d" / "SOCKET")]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        pytest.param("[::1]", marks=NEEDS_IPV6),
        pytest.param("localhost", marks=NEEDS_LOCALHOST),
    ],
)
def test_a_client_with_the_token_is_served_over_loopback(tmp_path: Path, host: str) -> None:
    token = token_in(tmp_path / "token")
    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(tcp=f"{host}:0", token_file=token) as serving,
        fmq.connect(f"tcp://{host}:{port_of(serving)}", token_file=token) as client,
    ):
        body = os.urandom(3 << 20)
        client.send("t", body)
        assert [each.body for each in client.read("t")] == [body]
        assert client.path == str(tmp_path / "d")


def test_a_client_without_the_token_is_refused_at_once(tmp_path: Path) -> None:
    token = token_in(tmp_path / "token")
    other = token_in(tmp_path / "other", "cd" * 32)
    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(tcp="127.0.0.1:0", token_file=token) as serving,
    ):
        for shown in (None, other):
            with pytest.raises(NotAllowed, match="has not shown the token"):
                fmq.connect(f"tcp://127.0.0.1:{port_of(serving)}", token_file=shown)
        with fmq.connect(engine.path) as client:  # its own user needs none
            client.send("t", b"1")


@NEEDS_LOCALHOST
def test_tls_serves_many_threads_of_one_client(tmp_path: Path) -> None:
    """Large messages cross in both directions at once."""
    token = token_in(tmp_path / "token")
    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(
            tcp="localhost:0", token_file=token, tls_cert=CERTIFICATE, tls_key=KEY
        ) as serving,
    ):
        address = f"tcp://127.0.0.1:{port_of(serving)}"
        with fmq.connect(address, token_file=token, tls_ca=CERTIFICATE) as client:

            def send(number: int) -> None:
                for _ in range(5):
                    client.send(f"t{number}", bytes([number]) * (1 << 20))
                    client.read(f"t{number}")

            threads = [Thread(target=send, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for number in range(4):
                assert [each.body for each in client.read(f"t{number}")] == [
                    bytes([number]) * (1 << 20)
                ] * 5
        with pytest.raises(NotServed):
            fmq.connect(address, token_file=token, retry_for=0.1)


def test_a_server_with_another_name_than_its_certificate_is_refused(tmp_path: Path) -> None:
    token = token_in(tmp_path / "token")
    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(
            tcp="127.0.0.2:0", token_file=token, tls_cert=CERTIFICATE, tls_key=KEY
        ) as serving,
        pytest.raises(NotAllowed, match="IP address mismatch"),
    ):
        fmq.connect(f"tcp://127.0.0.2:{port_of(serving)}", token_file=token, tls_ca=CERTIFICATE)


@NEEDS_LOCALHOST
def test_a_client_with_an_older_tls_is_refused(tmp_path: Path) -> None:
    token = token_in(tmp_path / "token")
    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(
            tcp="localhost:0", token_file=token, tls_cert=CERTIFICATE, tls_key=KEY
        ) as serving,
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(CERTIFICATE)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        for version, works in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1
                context.maximum_version = version
            with socket.create_connection(("127.0.0.1", port_of(serving))) as plain:
                if works:
                    context.wrap_socket(plain, server_hostname="localhost").close()
                else:
                    with pytest.raises((ssl.SSLError, ConnectionResetError)):
                        context.wrap_socket(plain, server_hostname="localhost")


Refused = Callable[[Path], dict[str, str | None]]
REFUSED: dict[str, tuple[type[FmqError], str, Refused]] = {
    "no token": (NotAllowed, "a token is needed", lambda _: {"token_file": None}),
    "no TLS": (
        NotAllowed,
        "or listen on 127",
        lambda _: {"tcp": "0.0.0.0:0"},
    ),
    "no TLS, IPv6": (NotAllowed, "tls_cert and tls_key", lambda _: {"tcp": "[::]:0"}),
    "readable": (
        NotAllowed,
        "no secret",
        lambda path: {"token_file": token_in(path / "r", mode=0o640)},
    ),
    "short": (BadOption, "64 hex", lambda path: {"token_file": token_in(path / "s", "ab")}),
    "no hex": (BadOption, "64 hex", lambda path: {"token_file": token_in(path / "s", "é" * 64)}),
    "missing": (BadOption, "openssl rand", lambda path: {"token_file": str(path / "none")}),
    "no port": (BadOption, "HOST:PORT", lambda _: {"tcp": "localhost"}),
    "no host": (BadOption, "HOST:PORT", lambda _: {"tcp": ":7707"}),
    "large port": (BadOption, "HOST:PORT", lambda _: {"tcp": "localhost:65536"}),
    "not here": (BadOption, "cannot listen", lambda _: {"tcp": "192.0.2.1:0"}),
    "no certificate": (BadOption, "PEM", lambda path: {"tls_cert": token_in(path / "c")}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_server_that_would_be_open_to_other_users_does_not_start(
    tmp_path: Path, why: str
) -> None:
    kind, text, change = REFUSED[why]
    wanted: dict[str, str | None] = {"tcp": "127.0.0.1:0", "token_file": None}
    wanted["token_file"] = token_in(tmp_path / "token")
    wanted |= change(tmp_path)
    with fmq.open(tmp_path / "d") as engine:
        with pytest.raises(kind, match=text):
            engine.serve(**wanted)  # type: ignore[arg-type]
        assert not (tmp_path / "d" / "SOCKET").exists()
        with engine.serve(), fmq.connect(engine.path) as client:
            client.send("t", b"1")


def test_a_token_that_others_may_read_is_refused_by_the_client_too(tmp_path: Path) -> None:
    token = token_in(tmp_path / "token", mode=0o604)
    with pytest.raises(NotAllowed, match="no secret"):
        fmq.connect("tcp://127.0.0.1:1", token_file=token)


def test_connecting_to_an_address_starts_no_process(tmp_path: Path) -> None:
    for where in (f"unix:{tmp_path}/SOCKET", "tcp://127.0.0.1:1"):
        with pytest.raises(NotServed):
            fmq.connect(where, retry_for=0.0)
    assert os.listdir(tmp_path) == []


def test_a_unix_address_reaches_a_socket_of_any_name(tmp_path: Path) -> None:
    """Also where its path is longer than an address of a socket may be."""
    with fmq.open(tmp_path / "d") as engine, engine.serve():
        long = tmp_path / ("l" * 100)
        long.mkdir()
        (long / "link").symlink_to(tmp_path / "d" / "SOCKET")
        with fmq.connect(f"unix:{long}/link") as client:
            client.send("t", b"1")


def test_a_server_of_another_kind_is_reported_as_such() -> None:
    """Such as a web server, which answers a HELLO in its own way."""
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            client, _ = web.accept()
            with client:
                client.recv(1)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = Thread(target=answer)
        thread.start()
        with pytest.raises(ProtocolError, match="no engine process"):
            fmq.connect(f"tcp://127.0.0.1:{web.getsockname()[1]}")
        thread.join()


def test_only_the_owner_and_root_may_use_the_socket_of_a_directory(tmp_path: Path) -> None:
    owner = tmp_path.stat().st_uid
    assert is_allowed(owner, str(tmp_path))
    assert is_allowed(0, str(tmp_path))
    assert not is_allowed(owner + 12345, str(tmp_path))
    with fmq.open(tmp_path / "d") as engine, engine.serve():
        assert (tmp_path / "d" / "SOCKET").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("a:1", "a", 1), ("[::1]:77", "::1", 77), ("1.2.3.4:0", "1.2.3.4", 0)],
)
def test_an_address_must_be_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_client_that_reads_late_gets_all_its_answers(tmp_path: Path, over_tls: bool) -> None:
    """It asks for 100 MiB before it reads any. The server waits for it, and serves the others."""
    token, count, size = token_in(tmp_path / "token"), 100, 1 << 20
    tls: dict[str, Any] = {"tls_cert": CERTIFICATE, "tls_key": KEY} if over_tls else {}
    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(tcp="127.0.0.1:0", token_file=token, **tls) as serving,
        socket.create_connection(("127.0.0.1", port_of(serving))) as plain,
    ):
        engine.send("t", bytes(size))
        late = plain
        if over_tls:
            context = ssl.create_default_context(cafile=CERTIFICATE)
            late = context.wrap_socket(plain, server_hostname="localhost")
        shown = bytes.fromhex(Path(token).read_text())
        late.sendall(frame(Op.HELLO, 0, encode_values([VERSION, b"h" * 16, shown, "host", 1])))
        read = encode_values(["t", 0, 0, 1, 0.0])
        late.sendall(b"".join(frame(Op.READ, n, read) for n in range(1, 1 + count)))
        with fmq.connect(engine.path) as other:
            for _ in range(10):
                other.send("u", b"1")
        splitter = Splitter(1 << 30)
        answers: list[Frame] = []
        late.settimeout(60.0)
        while len(answers) < 1 + count:
            data = late.recv(1 << 18)
            assert data, f"closed after {len(answers)} answers"
            answers += splitter.feed(data)
        assert [each.request for each in answers] == [*range(1 + count)]
        assert all(len(each.payload) > size for each in answers[1:])
        late.close()
