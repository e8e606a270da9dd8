"""The broker: a connection to an engine, and the handlers that work on it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import anyio
from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.exceptions import FeatureNotSupportedException
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec

import fmq
import fmq.aio
from faststream_fmq.command import command
from faststream_fmq.configuration import FmqBrokerConfig
from faststream_fmq.producer import NO_REQUEST, FmqProducer
from faststream_fmq.registrator import FmqRegistrator


class FmqLoggerStorage(DefaultLoggerStorage):
    """The logger of the brokers."""

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Do nothing: no column of the log is as wide as its longest name."""

    def get_logger(self, *, context: Any) -> Any:
        """Return the logger, which is made at the first call."""
        logger = self._get_logger_ref()
        if logger is None:
            logger = get_broker_logger(
                name="fmq",
                default_context={"topic": "", "group": ""},
                message_id_ln=10,
                fmt="%(asctime)s %(levelname)-8s - %(topic)s | %(group)s | %(message_id)s - "
                "%(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


class FmqBroker(FmqRegistrator, BrokerUsecase[Any, fmq.aio.AsyncEngine, FmqBrokerConfig]):
    """A broker whose topics are those of an engine."""

    def __init__(
        self,
        where: str | os.PathLike[str] | fmq.aio.AsyncEngine,
        *,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[FmqRegistrator] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = 15.0,
        apply_types: bool = True,
        serializer: Any = EMPTY,
        provider: Any = None,
        context: ContextRepo | None = None,
        id_generator: Any = gen_cor_id,
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        description: str | None = None,
        tags: Iterable[Any] = (),
    ) -> None:
        """`where` is a directory or an address, to which `fmq.aio.connect` connects at the start,
        or an engine, such as `fmq.aio.connect("tcp://...", token_file=..., lazy=True)`. The other
        arguments are those of FastStream's brokers.
        """
        self._where = where
        producer = FmqProducer(parser, decoder, codec)
        path = where.path if isinstance(where, fmq.aio.AsyncEngine) else os.fspath(where)
        super().__init__(
            routers=routers,
            config=FmqBrokerConfig(
                producer=producer,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_logger_state(
                    logger=logger, log_level=log_level, default_storage_cls=FmqLoggerStorage
                ),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=description,
                url=[path],
                protocol="fmq",
                protocol_version=fmq.__version__,
                security=None,
                tags=tags,
            ),
        )

    @property
    def engine(self) -> fmq.aio.AsyncEngine:
        """The engine, for `engine.transaction(bind=...)` and the like."""
        engine: fmq.aio.AsyncEngine = self._producer.open()
        return engine

    async def _connect(self) -> fmq.aio.AsyncEngine:
        producer = self.config.producer
        producer.serializer = self.config.fd_config._serializer
        if isinstance(self._where, fmq.aio.AsyncEngine):
            producer.engine = self._where
        else:
            producer.engine = await fmq.aio.connect(self._where)
        engine: fmq.aio.AsyncEngine = producer.engine
        return engine

    async def start(self) -> None:
        """Connect, and start all subscribers."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers, and close the connection, unless it is the caller's."""
        await super().stop(exc_type, exc_val, exc_tb)
        producer = self.config.producer
        engine, producer.engine, self._connection = producer.engine, None, None
        if engine is not None and engine is not self._where:
            await engine.close()

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **how: Any,
    ) -> fmq.Receipt | None:
        """Publish a message: in the transaction whose block is running, such as that of a handler,
        or at once if there is none. `how` has other arguments of fmq's `send`: `key`, `tag`,
        `delay`, `priority`, `message_id`...

        Return the receipt; None if the message is sent when the transaction commits.
        """
        cmd = command(
            topic,
            message,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            how=how,
        )
        receipt: fmq.Receipt | None = await self._basic_publish(cmd, producer=self._producer)
        return receipt

    async def publish_batch(
        self,
        *messages: Any,
        topic: str,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
    ) -> list[fmq.Receipt] | None:
        """Publish messages: all of them, or none."""
        cmd = command(
            topic,
            *messages,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
        )
        receipts: list[fmq.Receipt] | None = await self._basic_publish_batch(
            cmd, producer=self._producer
        )
        return receipts

    async def request(self, message: Any = None, topic: str = "", **_: Any) -> Any:
        """Refuse."""
        raise FeatureNotSupportedException(NO_REQUEST)

    async def ping(self, timeout: float | None = 3.0) -> bool:
        """Return whether the engine answers within `timeout` seconds."""
        with anyio.move_on_after(timeout):
            try:
                await self.engine.queues()
            except fmq.FmqError:
                return False
            return True
        return False
