"""The server: which function carries out each call of MessagingService, and how it answers.

Each request is read here from its bytes, so that one that is malformed gets a status like any other
refusal. A call answers with OK or with a code of RocketMQ, and never with an exception.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import DecodeError

import fmq
from fmq_rocketmq import protocol
from fmq_rocketmq.access import check_signature, read_keys
from fmq_rocketmq.clients import Clients
from fmq_rocketmq.protocol import AddressScheme, Code, message
from fmq_rocketmq.questions import Questions
from fmq_rocketmq.receiving import Receiving
from fmq_rocketmq.refusals import OK, Refused, status_of
from fmq_rocketmq.sending import PRODUCER, Sending
from fmq_rocketmq.settings import Guide
from fmq_rocketmq.telemetry import Telemetry

LOG = logging.getLogger("fmq.rocketmq")
DEFAULT_WHERE = "127.0.0.1:8081"
WORKERS = 256
WORKERS_MIN = 8
REQUEST_BYTES_OVER_BODY = 1 << 20
KEEP_SECONDS_MAX = 10.0
GRACE_SECONDS = 10.0  # for a call whose answer is on its way

UNSUPPORTED = {
    "PullMessage": "a client that keeps offsets itself is not served: use a consumer that acks",
    "UpdateOffset": "a group's progress is what it has acked",
    "GetOffset": "a group's progress is what it has acked: `fmq group show` prints it",
    "QueryOffset": "offsets are not shown to clients",
    "SyncLiteSubscription": "there are no lite topics: a topic of fmq costs little, so make one",
}

Endpoints = message("Endpoints")
Heartbeat = message("HeartbeatResponse")
Terminated = message("NotifyClientTerminationResponse")


class Server:
    """RocketMQ's gRPC protocol in front of an engine, from `serve` until `close`."""

    def __init__(
        self,
        engine: fmq.WritingEngine,
        where: str,
        *,
        fifo_groups: Collection[str],
        keys: Mapping[str, str] | None,
        tls_cert: str | None,
        tls_key: str | None,
        workers: int,
    ) -> None:
        host, port = _host_and_port(where)
        credentials = _credentials(tls_cert, tls_key)
        _check_reach(host, has_tls=credentials is not None, has_keys=bool(keys))
        if workers < WORKERS_MIN:
            raise fmq.BadOption(f"workers={workers}: at least {WORKERS_MIN}. Nothing was opened.")
        self._keys = keys
        self._clients = Clients()
        self._questions = Questions(engine, self._clients, PRODUCER)
        # Streams and polls wait for long. A part of the threads is left for calls that do not.
        part = workers * 3 // 8
        self._receiving = Receiving(engine, self._clients, fifo_groups=fifo_groups, polls_max=part)
        self._sending = Sending(engine, self._questions)
        own = Endpoints(scheme=_scheme(host))
        self._guide = Guide(engine, self._clients, own, fifo_groups)
        self._telemetry = Telemetry(self._clients, self._guide, part)
        self._grpc = grpc.server(
            ThreadPoolExecutor(workers, thread_name_prefix="fmq-rocketmq"),
            handlers=[self._handlers()],
            maximum_concurrent_rpcs=workers,
            options=[
                # Without it a second server on the same port would take half of the clients.
                ("grpc.so_reuseport", 0),
                (
                    "grpc.max_receive_message_length",
                    engine.options.message_bytes_max + REQUEST_BYTES_OVER_BODY,
                ),
            ],
        )
        bound = _bind(self._grpc, host, port, credentials)
        own.addresses.add(host=host, port=bound)
        self.address = f"{host}:{bound}"
        """Where clients reach the server: host and port."""
        self._is_closed = threading.Event()
        every = min(KEEP_SECONDS_MAX, engine.options.member_timeout_seconds / 3)
        self._keeper = threading.Thread(
            target=self._keep, args=(every,), name="fmq-rocketmq-keep", daemon=True
        )
        self._questions.start()
        self._keeper.start()
        self._grpc.start()

    def close(self) -> None:
        """End all calls and leave all groups. The engine stays open. It may be called again."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        # Polls and streams end first, because the server waits for its calls.
        self._receiving.drain()
        self._clients.close_all()
        self._grpc.stop(GRACE_SECONDS).wait()
        self._questions.close()
        self._keeper.join()
        self._receiving.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _keep(self, every: float) -> None:
        while not self._is_closed.wait(every):
            try:
                self._receiving.keep()
            except Exception:
                LOG.exception("cannot renew what clients hold")

    # --- the calls ------------------------------------------------------------------------------

    def _handlers(self) -> Any:
        """Return a handler for each call. A call of the protocol without one is a defect."""
        unary: dict[str, Callable[[Any, str], Any]] = {
            "QueryRoute": self._guide.route,
            "QueryAssignment": self._guide.assignment,
            "Heartbeat": self._heartbeat,
            "SendMessage": self._sending.send,
            "EndTransaction": self._sending.end,
            "RecallMessage": self._sending.recall,
            "AckMessage": self._receiving.ack,
            "ChangeInvisibleDuration": self._receiving.change,
            "ForwardMessageToDeadLetterQueue": self._receiving.forward,
            "NotifyClientTermination": self._client_ends,
        }
        made = {}
        for call in protocol.calls():
            reads, answers = map(protocol.class_of, (call.input_type, call.output_type))
            if call.name == "Telemetry":
                made[call.name] = grpc.stream_stream_rpc_method_handler(
                    self._stream(answers, self._telemetry.serve),
                    response_serializer=answers.SerializeToString,
                )
            elif call.name == "ReceiveMessage":
                made[call.name] = grpc.unary_stream_rpc_method_handler(
                    self._stream(answers, _reading(reads, self._receiving.receive)),
                    response_serializer=answers.SerializeToString,
                )
            elif call.name == "PullMessage":
                made[call.name] = grpc.unary_stream_rpc_method_handler(
                    self._stream(answers, _refusing(UNSUPPORTED[call.name])),
                    response_serializer=answers.SerializeToString,
                )
            else:
                function = unary.get(call.name)
                if function is None:
                    function = _unsupported(UNSUPPORTED[call.name])
                made[call.name] = grpc.unary_unary_rpc_method_handler(
                    self._unary(reads, answers, function),
                    response_serializer=answers.SerializeToString,
                )
        return grpc.method_handlers_generic_handler(protocol.SERVICE, made)

    def _unary(self, reads: Any, answers: Any, function: Callable[[Any, str], Any]) -> Any:
        def answer(data: bytes, context: Any) -> Any:
            try:
                client = self._client(context)
                return function(_read(reads, data), client)
            except Exception as error:
                return answers(status=_told(error))

        return answer

    def _stream(self, answers: Any, function: Callable[[Any, str, Any], Iterator[Any]]) -> Any:
        def answer(data: Any, context: Any) -> Iterator[Any]:
            try:
                yield from function(data, self._client(context), context)
            except Exception as error:
                yield answers(status=_told(error))

        return answer

    def _client(self, context: Any) -> str:
        """Return the id of the client that calls. Raises Refused if it may not."""
        said = {each.key: each.value for each in context.invocation_metadata()}
        if self._keys is not None:
            check_signature(self._keys, said)
        client = said.get("x-mq-client-id", "")
        if not client:
            raise Refused(
                Code.CLIENT_ID_REQUIRED, "the request has no x-mq-client-id. Nothing was changed."
            )
        self._clients.note_call(client)
        return str(client)

    def _heartbeat(self, request: Any, client: str) -> Any:
        return Heartbeat(status=OK)

    def _client_ends(self, request: Any, client: str) -> Any:
        self._receiving.client_ends(client)
        self._clients.forget(client)
        return Terminated(status=OK)


def _read(reads: Any, data: bytes) -> Any:
    try:
        return reads.FromString(data)
    except DecodeError:
        raise Refused(
            Code.BAD_REQUEST, f"the bytes are no {reads.DESCRIPTOR.name}. Nothing was changed."
        ) from None


def _reading(
    reads: Any, function: Callable[[Any, str, Any], Iterator[Any]]
) -> Callable[[Any, str, Any], Iterator[Any]]:
    def answer(data: bytes, client: str, context: Any) -> Iterator[Any]:
        yield from function(_read(reads, data), client, context)

    return answer


def _unsupported(why: str) -> Callable[[Any, str], Any]:
    def refuse(request: Any, client: str) -> Any:
        raise Refused(Code.UNSUPPORTED, f"{why}. Nothing was changed.")

    return refuse


def _refusing(why: str) -> Callable[[Any, str, Any], Iterator[Any]]:
    def refuse(data: Any, client: str, context: Any) -> Iterator[Any]:
        raise Refused(Code.UNSUPPORTED, f"{why}. Nothing was changed.")

    return refuse


def _told(error: Exception) -> Any:
    """Return the status for an error. One that is neither fmq's nor a refusal is a defect."""
    if not isinstance(error, (Refused, fmq.FmqError)):
        LOG.exception("a call has failed", exc_info=error)
    return status_of(error)


# --- opening --------------------------------------------------------------------------------------


def serve(
    engine: fmq.WritingEngine,
    where: str = DEFAULT_WHERE,
    *,
    fifo_groups: Collection[str] = (),
    keys: Mapping[str, str] | None = None,
    keys_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    workers: int = WORKERS,
) -> Server:
    """Serve `engine` to clients of RocketMQ 5 at `where`, as "host:port"; port 0 takes a free one.

    The messages of each message group reach the consumer groups in `fifo_groups` in their order.
    With `keys`, a secret by each access key, or a `keys_file` with them as JSON, each request must
    be signed. `tls_cert` and `tls_key` are files in PEM. A host beyond this machine needs both. A
    client takes up to two of `workers` threads, and a third of them is left for short calls.

    Close the server before the engine. Raises BadOption, or OSError if the port is taken.
    """
    if keys_file is not None:
        keys = {**(keys or {}), **read_keys(keys_file)}
    return Server(
        engine,
        where,
        fifo_groups=fifo_groups,
        keys=keys,
        tls_cert=tls_cert,
        tls_key=tls_key,
        workers=workers,
    )


def _host_and_port(where: str) -> tuple[str, int]:
    host, found, port = where.rpartition(":")
    if not (found and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise fmq.BadOption(
            f"{where!r}: must be host and port, such as {DEFAULT_WHERE}. Nothing was opened."
        )
    return host.strip("[]"), int(port)


def _check_reach(host: str, *, has_tls: bool, has_keys: bool) -> None:
    """Raise BadOption if the host is beyond this machine, and clients are not known or not hidden
    from others.
    """
    try:
        is_near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_near = host == "localhost"
    if not is_near and not (has_tls and has_keys):
        raise fmq.BadOption(
            f"{host!r} is beyond this machine: that needs tls_cert, tls_key and keys, as every "
            "client that reaches the port could read and send. Nothing was opened."
        )


def _credentials(cert: str | None, key: str | None) -> Any:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise fmq.BadOption("tls_cert and tls_key go together. Nothing was opened.")
    with open(cert, "rb") as certs, open(key, "rb") as private:
        return grpc.ssl_server_credentials([(private.read(), certs.read())])


def _bind(server: Any, host: str, port: int, credentials: Any) -> int:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            bound = server.add_insecure_port(where)
        else:
            bound = server.add_secure_port(where, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen at {where}: {error}. Nothing was opened.") from None
    return int(bound)


def _scheme(host: str) -> int:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return int(AddressScheme.DOMAIN_NAME)
    return int(AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6)
