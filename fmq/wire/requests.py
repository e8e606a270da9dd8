"""The tables of what each request may say. A payload is decoded by them before anything is planned.

So no request can bring a value at which the engine would fail in the middle of a change. Each op is
in DECODERS, each call by name in CALLS, each change of a group or topic in CHANGES.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import Any, NamedTuple

from fmq.errors import FmqError
from fmq.feedback.question import Question
from fmq.tx.ledger.attempts import ATTEMPTS_MAX
from fmq.wire.claims import decode_ack, decode_acks, decode_take
from fmq.wire.fields import (
    Field,
    Row,
    count,
    data,
    flag,
    list_of,
    number,
    optional,
    positive,
    scalar,
    seconds,
    text,
    u16,
    u32,
    u64,
    within,
    written,
)
from fmq.wire.frames import BadFrame, Op
from fmq.wire.sends import decode_recall, decode_send
from fmq.wire.transaction_frames import decode_collected
from fmq.wire.values import decode_asked


def _question(what: str, value: Any) -> Any:
    """Check those parts of a question that the engine looks at."""
    if type(value) is not Question or not (
        type(value.tx_id) is type(value.token) is str
        and type(value.tx) is int
        and type(value.lease_seconds) in (int, float)
    ):
        raise TypeError(f"{what}: is about a question that was asked. Nothing was changed.")
    return value


def _retry(what: str, value: Any) -> Any:
    """Check the values of a Retry, as `Retry.said` returns them. Its delays are a number, or a
    list.
    """
    attempts, backoff, jitter = Row(attempts=scalar, backoff=_anything, jitter=scalar)(what, value)
    return [
        attempts,
        list_of(seconds)("backoff", backoff)
        if type(backoff) is list
        else seconds("backoff", backoff),
        jitter,
    ]


def _anything(what: str, value: Any) -> Any:
    return value


def _options(what: str, value: Any) -> Any:
    """Check that `value` has names with values. The engine checks whether they are options."""
    if type(value) is not dict:
        raise TypeError(f"{what}={value!r:.80}: is a dict. Nothing was changed.")
    return {text("an option", name): scalar(str(name), each) for name, each in value.items()}


def _headers(what: str, value: Any) -> Any:
    """Return `value` if it is a dict of texts."""
    if type(value) is not dict:
        raise TypeError(f"{what}={value!r:.80}: is a dict. Nothing was changed.")
    return {text("a header name", name): text("a header", each) for name, each in value.items()}


class Signature:
    """The arguments of a call by name: positional ones, and named ones."""

    def __init__(self, named: dict[str, Field] | None = None, /, **fields: Field) -> None:
        self._row = Row(**fields)
        self._named = named or {}

    def check(self, args: Any, named: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the checked arguments. Raises TypeError, or the error of the field that refuses
        one.
        """
        if type(named) is not dict or not named.keys() <= self._named.keys():
            raise TypeError(f"{named!r:.80}: named arguments that the call does not have.")
        found = {name: self._named[name](name, value) for name, value in named.items()}
        return self._row("the arguments", args), found


PLACE = Row(topic=text, replayed=flag, queue=count, offset=count)

CALLS: dict[str, Signature] = {
    "ack_ticket": Signature(group=text, ticket=text, sync=optional(flag)),
    "appended": Signature(position=count, topics=optional(list_of(text)), limit=positive),
    "beat": Signature(every=seconds, during=seconds),
    "became": Signature(asked=list_of(Row(tx_id=text, number=u64, tries=count))),
    "check_dead": Signature(group=text, numbers=list_of(number)),
    "check_group": Signature(group=text),
    "check_topic": Signature(topic=text),
    "clients": Signature(),
    "checkpoint": Signature(),
    "codec_of": Signature(topic=text),
    "commit_prepared": Signature(tx_id=text, number=u64, sync=optional(flag)),
    "confirm_prepared": Signature(tx_id=text, number=u64),
    "count_dead": Signature(group=text),
    "count_decision": Signature(asked=_question),
    "count_unknown": Signature(asked=_question),
    "decide": Signature(
        {"reason": text, "decided_by": text, "seal": optional(text)},
        tx_id=text,
        decision=scalar,
    ),
    "decide_many": Signature(tx_ids=list_of(text), decision=scalar, mark=_anything),
    "delayed": Signature(topic=optional(text), limit=positive),
    "end_try": Signature(asked=_question),
    "erase": Signature(
        topic=text, queue=optional(count), offset=optional(count), key=optional(text)
    ),
    "finish_decisions": Signature(),
    "former_members": Signature(group=text),
    "give_way": Signature(),
    "groups": Signature(group=optional(text)),
    "has_bound": Signature(producer=text),
    "in_hand": Signature(group=text, after=optional(PLACE), limit=positive),
    "make_all_due": Signature(producers=list_of(text)),
    "make_due": Signature(tx_id=text),
    "mark": Signature(name=text),
    "marks": Signature(names=list_of(text), prefix=optional(text)),
    "members": Signature(group=text),
    "offset_at": Signature(topic=text, queue=count, time_us=number),
    "outcome": Signature(tx_id=text),
    "outcome_of": Signature(tx_id=text, number=u64),
    "page_of_dead": Signature(group=text, after=number, limit=positive),
    "passing": Signature(group=text, topic=text),
    "places_of": Signature(topic=text, key=text, limit=positive),
    "prepared": Signature(tx_id=text, number=u64),
    "purge_dead": Signature(
        {"or_gone": flag},
        group=text,
        numbers=optional(list_of(number)),
        before_us=optional(number),
    ),
    "put_out": Signature(group=text, member=text, by=written, reason=written),
    "queues": Signature(topic=optional(text)),
    "queues_of": Signature(topic=text),
    "reject_ticket": Signature(group=text, ticket=text, reason=text),
    "release_ticket": Signature(group=text, ticket=text, delay=seconds, count=flag),
    "release": Signature(group=text, member=text, by=written, reason=written),
    "replay_dead": Signature({"or_gone": flag}, group=text, numbers=optional(list_of(number))),
    "replayed": Signature(group=text, topic=text, after=number, limit=positive),
    "schedules": Signature(name=optional(text)),
    "settings": Signature(),
    "roll_back_prepared": Signature(tx_id=text, number=u64, unused=optional(flag)),
    "stats": Signature(),
    "stop": Signature(seconds=seconds),
    "sync": Signature(),
    "take_one": Signature(tx_id=text),
    "unacked": Signature(group=text, topic=text, limit=positive),
    "undecided": Signature(),
}

CHANGES: dict[str, Row] = {
    "ack_below": Row(group=text, topic=text, queue=scalar, offset=scalar),
    "add_queues": Row(topic=text, count=scalar),
    "configure": Row(values=_options, reset=list_of(text), only_new=flag),
    "delete_group": Row(group=text),
    "delete_topic": Row(topic=text),
    "limit": Row(
        group=text,
        concurrency=scalar,
        rate=scalar,
        concurrency_by_key=scalar,
        rate_by_key=scalar,
        fair=flag,
        by=written,
        reason=written,
    ),
    "make_group": Row(group=text, topic=text, at=scalar, exist_ok=flag, filter=written),
    "make_topic": Row(topic=text, queues=scalar, retain_seconds=scalar),
    "pause": Row(group=text, topic=text, by=written, reason=written),
    "pause_schedule": Row(name=text, by=written, reason=written),
    "purge": Row(group=text, topic=text, queue=scalar, at=scalar, by=written, reason=written),
    "reject": Row(group=text, topic=text, queue=scalar, offset=scalar, reason=text),
    "remove_schedule": Row(name=text, by=written, reason=written),
    "resume": Row(group=text, topic=text, by=written, reason=written),
    "resume_schedule": Row(name=text, by=written, reason=written),
    "retain": Row(topic=text, seconds=scalar),
    "run_schedule": Row(name=text, by=written, reason=written),
    "schedule": Row(
        name=text,
        cron=text,
        topic=text,
        body=data,
        timezone=text,
        key=optional(text),
        tag=optional(text),
        headers=_headers,
        missed=text,
        by=written,
        replace=flag,
    ),
    "seek": Row(group=text, topic=text, queue=scalar, at=scalar),
    "set_filter": Row(group=text, topic=text, filter=written),
    "set_codec": Row(topic=text, name=text, version=positive, fields=optional(_headers)),
    "skip": Row(group=text, topic=text, queue=scalar, offset=scalar, count=scalar),
}

TABLE_ROWS_MAX = 4096
VIRTUAL_NODES_MAX = 1000
QUEUE_ROOMS = list_of(Row(queue=u16, room=text), TABLE_ROWS_MAX)
MEMBER_ROOMS = list_of(Row(member=text, room=text), TABLE_ROWS_MAX)


def _strategy_of(kinds: dict[str, Row]) -> Field:
    """Return the field for a strategy: its name, or a list of its name and its arguments."""

    def check(what: str, value: Any) -> Any:
        if type(value) is not list:
            return text(what, value)
        if not value or type(value[0]) is not str or value[0] not in kinds:
            raise TypeError(
                f"{what}={value!r:.80}: begins with one of {', '.join(kinds)}. Nothing was changed."
            )
        name, *args = value
        return [name, *kinds[name](what, args)]

    return check


INNER_STRATEGIES: dict[str, Row] = {
    "consistent_hash": Row(virtual_nodes=within(1, VIRTUAL_NODES_MAX)),
    "by_room": Row(rooms=list_of(text, TABLE_ROWS_MAX), queue_room=QUEUE_ROOMS),
    "by_configuration": Row(
        table=list_of(Row(member=text, queues=list_of(u16, TABLE_ROWS_MAX)), TABLE_ROWS_MAX)
    ),
}
STRATEGIES: dict[str, Row] = {
    **INNER_STRATEGIES,
    "nearby": Row(
        inner=_strategy_of(INNER_STRATEGIES), queue_room=QUEUE_ROOMS, member_room=MEMBER_ROOMS
    ),
}
"""The arguments that a strategy of this name has in a JOIN, see fmq.allocation.transfer."""

JOIN = Row(
    8,
    topics=list_of(text),
    group=text,
    lease_seconds=seconds,
    claims=list_of(Row(number=u32, topic=text, queue=u16, first=u64, end=u64)),
    member=text,
    strategy=optional(_strategy_of(STRATEGIES)),
    filter=optional(written),
    retry=optional(_retry),
    ordered=flag,
    strict=flag,
    is_told=flag,
    broadcast=flag,
    expired=text,
    damaged=text,
)
READ = Row(5, topic=text, queue=count, offset=count, limit=positive, timeout=seconds, name=number)
WAIT = Row(
    2, places=list_of(Row(topic=text, queue=count, offset=count)), timeout=seconds, name=number
)
POLL = Row(3, limit=positive, timeout=seconds, in_one_piece=flag, name=number)
RANGE: dict[str, Field] = {"claim": u32, "first": u64, "end": u64}
RELEASE = Row(**RANGE, delay=seconds, count=flag, attempt=within(1, ATTEMPTS_MAX))
REJECT = Row(**RANGE, topic=text, queue=u16, reason=text)
ASK = Row(keys=list_of(Row(producer=text, key=optional(text))), limit=positive, wait=seconds)


class CallAsked(NamedTuple):
    """A call by name."""

    name: str
    args: list[Any]
    named: dict[str, Any]


class ChangeAsked(NamedTuple):
    """A change of a group or a topic."""

    sequence: int
    waiting: int
    name: str
    args: list[Any]


_CALL = Row(name=text, args=_anything, named=_anything)
_CHANGE = Row(sequence=u64, waiting=u16, name=text, args=_anything)


def _decode_call(payload: bytes) -> CallAsked:
    name, args, named = _CALL.decode(payload)
    if name not in CALLS:
        raise BadFrame(f"a call of {name!r:.40}")
    return CallAsked(name, *CALLS[name].check(args, named))


def _decode_change(payload: bytes) -> ChangeAsked:
    sequence, waiting, name, args = _CHANGE.decode(payload)
    if name not in CHANGES:
        raise BadFrame(f"a change by {name!r:.40}")
    return ChangeAsked(sequence, waiting, name, CHANGES[name]("the arguments", args))


def _decode_nothing(payload: bytes) -> None:
    if payload:
        raise BadFrame("a request with a payload that it does not have")


DECODERS: dict[int, Callable[[bytes], Any]] = {
    Op.HELLO: decode_asked,
    Op.SEND: decode_send,
    Op.COMMIT: decode_collected,
    Op.PREPARE: decode_collected,
    Op.CALL: _decode_call,
    Op.READ: READ.decode,
    Op.JOIN: JOIN.decode,
    Op.POLL: POLL.decode,
    Op.ACK: decode_ack,
    Op.RELEASE: RELEASE.decode,
    Op.LEAVE: Row(counts=flag).decode,
    Op.ASK: ASK.decode,
    Op.HOLD: Row(**RANGE).decode,
    Op.END_HOLD: Row(**RANGE).decode,
    Op.TAKE_ID: Row(tx_id=text).decode,
    Op.RELEASE_ID: Row(tx_id=text).decode,
    Op.TAKE: decode_take,
    Op.REJECT: REJECT.decode,
    Op.CHANGE: _decode_change,
    Op.RECALL: decode_recall,
    Op.CANCEL: Row(name=number).decode,
    Op.DRAIN: _decode_nothing,
    Op.EXTEND: Row(**RANGE, seconds=seconds).decode,
    Op.ACK_ALL: decode_acks,
    Op.ADVANCE: decode_ack,
    Op.WAIT: WAIT.decode,
}
"""How the payload of each request is decoded: see `decode`."""


def decode(op: int, payload: bytes) -> Any:
    """Return the content of a request. Raises BadFrame, or the TypeError or FmqError of a refused
    value.
    """
    decoder = DECODERS.get(op)
    if decoder is None:
        raise BadFrame(f"an op {op} that this version does not know")
    try:
        return decoder(payload)
    except FmqError:
        # Some errors of fmq are also a ValueError: pass them on.
        raise
    except (ValueError, StructError) as error:
        raise BadFrame(f"a request that cannot be read: {error!r}") from None
