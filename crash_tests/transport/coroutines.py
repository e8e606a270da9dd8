"""What only a client of asyncio does: many polls wait at once, and calls are cancelled."""

from __future__ import annotations

from asyncio import CancelledError, Task, create_task, gather, sleep
from typing import Any

from crash_tests.oracle import Violation
from fmq.basics.clock import Clock
from fmq.basics.message import Receipt

HERD = 3  # number of polls, and of messages
TURNS = 3  # turns of the loop after which a call was sent
WAIT_SECONDS = 60.0


async def herd(
    engine: Any, consumers: list[Any], clock: Clock, name: bytes, *, acks: bool
) -> list[Receipt]:
    """Send a message for each poll that waits, and ack all in one transaction."""
    polls = [create_task(each.poll(limit=1, timeout=WAIT_SECONDS)) for each in consumers]
    await _turns()
    began = clock.monotonic()
    receipts: list[Receipt] = await engine.send_many("h", [name] * HERD)
    found = await gather(*polls)
    if clock.monotonic() - began >= WAIT_SECONDS:
        raise Violation("I7", f"there is a message for each poll, and one waited: {found}")
    places = {each.offset for deliveries in found for each in deliveries}
    if len(places) != HERD:
        raise Violation("I7", f"{HERD} messages, and {HERD} polls have found {found}")
    if acks:
        tx = engine.transaction(tx_id=f"H{name.decode()}")
        for deliveries in found:
            for each in deliveries:
                await tx.ack(each)
        await tx.commit()
    return receipts


async def cancelled_send(engine: Any, name: bytes, times: int) -> None:
    """Cancel a send. If it was sent already, it ends with its answer. Otherwise it is taken
    back.
    """
    # After it, the client knows the queues of the topic and need not ask.
    await engine.send("a", name + b" before")
    error = await _cancelled(create_task(engine.send("a", name)), times)
    notes = "".join(getattr(error, "__notes__", ()))
    if not notes:
        await engine.send("a", name)
    elif "Receipt" not in notes:
        raise Violation("I1", f"a send was cancelled, and its error says {notes!r}")
    found = [each.body for each in await engine.read("a", limit=999)]
    if found.count(name) != 1:
        raise Violation("I1", f"{name!r} was cancelled {times} times ({notes}): {found}")


async def cancelled_poll(consumer: Any, pause: Any, times: int) -> None:
    """Cancel a poll. The messages that it had found come to the next poll. Nothing is kept."""
    before = await _all_of(consumer, pause)
    pause()
    await _cancelled(create_task(consumer.poll(limit=99)), times)
    after = await _all_of(consumer, pause)
    if before != after:
        raise Violation("I7", f"before a poll was cancelled came {before}, and then {after}")


async def _all_of(consumer: Any, pause: Any) -> set[tuple[str, int, int]]:
    """Return all messages that come, after giving them back uncounted. If the attempts counted, a
    message would soon wait for longer than the pause.
    """
    found: list[Any] = []
    pause()
    while deliveries := await consumer.poll(limit=99):
        found += deliveries
    for each in found:
        await each.release(delay=0.0, count=False)
    return {(each.topic, each.queue, each.offset) for each in found}


async def _cancelled(task: Task[Any], times: int) -> CancelledError:
    for _ in range(times):
        await _turns()
        task.cancel()
    try:
        found = await task
    except CancelledError as error:
        return error
    raise Violation("I0", f"a call was cancelled, and has returned {found!r}")


async def _turns() -> None:
    for _ in range(TURNS):
        await sleep(0)
