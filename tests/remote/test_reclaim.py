"""What clients had in work when their server was killed is theirs if they connect in time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmq
from fmq import Engine
from fmq.errors import EngineFailed, LeaseLost
from fmq.server.handed_out import WORDS
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.transport import MemoryServer
from tests.small import opened


class Machine:
    """A disk, and the server that runs there now."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.disk = CrashDisk()
        self.engine = opened(self.disk, self.clock)
        self.server = MemoryServer(self.engine, self.clock)

    def kill(self) -> None:
        """Kill the server, and start the next one."""
        self.disk = self.disk.after_kill()
        dead, self.engine = self.engine, opened(self.disk, self.clock)
        assert self.server.host is not None
        for session in self.server.host.sessions.values():
            session.has_ended = True
            session.close()
        self.server.serve(self.engine)
        dead.close()  # this changes nothing that the kill has left

    def end(self) -> None:
        """End the server as it should, and start the next one."""
        self.server.close()
        self.engine.close()
        self.engine = opened(self.disk, self.clock)
        self.server.serve(self.engine)


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.engine.close()


def test_messages_being_handled_stay_with_their_consumer_after_a_kill(machine: Machine) -> None:
    """New messages go to any consumer at once."""
    first, second = machine.server.connect(), machine.server.connect()
    first.send_many("t", [b"0", b"1", b"2", b"3"])
    mine = first.consumer("t", group="g")
    taken = mine.poll(limit=2)
    machine.kill()
    other = second.consumer("t", group="g")
    assert [each.message.body for each in other.poll()] == [b"2", b"3"]
    for delivery in taken:
        delivery.ack()
    machine.clock.advance(2.0)
    assert other.poll() == []


def test_messages_of_a_broadcast_member_are_not_held_back_after_a_kill(machine: Machine) -> None:
    """Its own group has no other member, and the group whose name it has given is another one."""
    client = machine.server.connect()
    client.create_topic("t")
    client.create_group("g", "t")
    broadcast = client.consumer("t", group="g", member="m", broadcast=True)
    client.send_many("t", [b"0", b"1"])
    assert len(broadcast.poll(limit=2)) == 2
    machine.kill()
    assert len(machine.server.connect().consumer("t", group="g").poll(limit=2)) == 2
    returned = machine.server.connect().consumer("t", group="g", member="m", broadcast=True)
    machine.clock.advance(1.5)  # a failed attempt waits for less, and `reclaim_seconds` are more
    assert len(returned.poll(limit=2)) == 2


def test_messages_of_a_dead_consumer_are_handed_out_after_reclaim_seconds(machine: Machine) -> None:
    first, second = machine.server.connect(), machine.server.connect()
    first.send_many("t", [b"0", b"1"])
    gone = first.consumer("t", group="g")
    gone.poll(limit=1)[0].ack()
    gone.poll(limit=1)
    machine.kill()
    other = second.consumer("t", group="g")
    before = machine.clock.monotonic()
    assert other.poll(timeout=1.0) == []
    assert [each.message.body for each in other.poll(timeout=10)] == [b"1"]
    assert 1.9 < machine.clock.monotonic() - before < 2.2


def test_nothing_is_held_back_after_a_clean_end(machine: Machine) -> None:
    client = machine.server.connect()
    client.send_many("t", [b"0", b"1"])
    client.consumer("t", group="g").poll(limit=1)
    machine.server.close()
    machine.server.serve(machine.engine)
    consumer = machine.server.connect().consumer("t", group="g")
    assert len(consumer.poll() + consumer.poll()) == 2


@pytest.mark.parametrize("ends_cleanly", [False, True])
def test_work_stays_with_its_client_if_the_next_server_ends_before_it_is_back(
    machine: Machine, ends_cleanly: bool
) -> None:
    """As a process that a client has started does, which gives way to another one."""
    first, second = machine.server.connect(), machine.server.connect()
    first.send_many("t", [b"0", b"1", b"2"])
    mine = first.consumer("t", group="g").poll(limit=2)
    machine.kill()
    if ends_cleanly:
        machine.end()
    else:
        machine.kill()
    machine.clock.advance(1.5)  # an attempt that a kill has ended waits for less
    other = second.consumer("t", group="g")
    assert [each.body for each in other.poll() + other.poll()] == [b"2"]
    for delivery in mine:
        delivery.ack()


def test_a_server_that_ends_later_holds_nothing_back(machine: Machine) -> None:
    client = machine.server.connect()
    client.send_many("t", [b"0", b"1"])
    client.consumer("t", group="g").poll(limit=1)
    machine.kill()
    machine.clock.advance(2.5)
    machine.end()
    consumer = machine.server.connect().consumer("t", group="g")
    assert len(consumer.poll() + consumer.poll()) == 2


def test_a_full_page_holds_back_groups_that_it_does_not_list(machine: Machine) -> None:
    """It has no room for the last of the groups."""
    client = machine.server.connect()
    client.send("t", b"0")
    consumers = [client.consumer("t", group=f"g{number}") for number in range(WORDS // 2)]
    for consumer in consumers:
        assert len(consumer.poll()) == 1
    machine.kill()
    other = machine.server.connect()
    assert other.consumer("t", group=f"g{WORDS // 2 - 1}").poll() == []
    assert other.consumer("t", group="g0").poll() == []


def test_a_client_that_comes_back_late_takes_nothing_from_others(machine: Machine) -> None:
    first, second = machine.server.connect(), machine.server.connect()
    first.send_many("t", [b"0", b"1"])
    late = first.consumer("t", group="g").poll()
    machine.kill()
    machine.clock.advance(2.5)
    mine = second.consumer("t", group="g").poll()
    assert [each.body for each in mine] == [b"0", b"1"]
    for delivery in late:
        with pytest.raises(LeaseLost):
            delivery.ack()
    for delivery in mine:
        delivery.ack()


def test_an_undecided_transaction_keeps_the_messages_that_it_acks(machine: Machine) -> None:
    client = machine.server.connect()
    client.send_many("t", [b"0", b"1", b"2"])
    taken = client.consumer("t", group="g").poll()
    tx = client.transaction(tx_id="T")
    tx.ack(taken[1])
    tx.prepare()
    machine.kill()
    machine.clock.advance(5)
    other: Engine = machine.engine
    consumer = other.consumer("t", group="g")
    found = consumer.poll() + consumer.poll() + consumer.poll()
    assert [each.message.body for each in found] == [b"0", b"2"]
    other.decide("T", "rollback")
    assert [each.message.body for each in consumer.poll()] == [b"1"]


def test_reclaimed_messages_keep_the_order_of_their_keys(machine: Machine) -> None:
    """The next server has to read the keys of what it has not handed out itself."""
    client = machine.server.connect()
    for body, key in (b"0", "a"), (b"1", "b"), (b"2", "a"):
        client.send("t", body, key=key)
    consumer = client.consumer("t", group="g", ordered=True)
    first, other, later = consumer.poll()
    other.ack()
    machine.kill()
    first.release()
    with pytest.raises(LeaseLost):
        later.ack()
    (again,) = consumer.poll()
    assert again.body == b"0"
    again.ack()
    assert [each.body for each in consumer.poll()] == [b"2"]


def test_messages_in_hand_of_clients_count_for_a_limit_after_a_kill(machine: Machine) -> None:
    """This holds also in queues that were not polled since."""
    first = machine.server.connect()
    first.create_topic("t", queues=2)
    first.create_topic("u")
    for queue in (0, 1):
        first.send_many("t", [b"0", b"1"], queue=queue)
    first.send_many("u", [b"0", b"1"])
    mine = first.consumer(("t", "u"), group="g")
    first.group("g").limit(concurrency=3)
    taken = [each for _ in range(3) for each in mine.poll(limit=1)]
    assert len({(each.topic, each.queue) for each in taken}) == 3
    machine.kill()
    other = machine.server.connect().consumer(("t", "u"), group="g")
    assert other.poll() == []
    taken[0].ack()
    assert len(other.poll(limit=9)) == 1
    assert other.poll() == []
    machine.clock.advance(60.0)
    assert len(other.poll(limit=9)) + len(other.poll(limit=9)) <= 3


def test_messages_in_hand_of_clients_count_for_a_limit_by_key_after_a_kill(
    machine: Machine,
) -> None:
    first = machine.server.connect()
    first.create_topic("t", queues=2)
    for queue in (0, 1):
        for key in "aab":
            first.send("t", key.encode(), key=key, queue=queue)
    mine = first.consumer("t", group="g")
    first.group("g").limit(concurrency_by_key=2)
    taken = [each for _ in range(4) for each in mine.poll(limit=9) if each.key == "a"]
    assert len(taken) == 2
    machine.kill()
    other = machine.server.connect().consumer("t", group="g")
    found = [each.key for _ in range(4) for each in other.poll(limit=9)]
    assert "a" not in found
    taken[0].ack()
    machine.clock.advance(2.5)  # what was passed over before the kill is kept back no longer
    found = [each.key for _ in range(4) for each in other.poll(limit=9)]
    assert found.count("a") == 1


def test_a_message_at_its_third_attempt_counts_for_a_limit_after_a_kill(machine: Machine) -> None:
    first = machine.server.connect()
    first.send("t", b"0")
    mine = first.consumer("t", group="g", retry=fmq.Retry(backoff=0))
    first.group("g").limit(concurrency=1)
    for _ in range(2):
        mine.poll(limit=1)[0].release()
    [held] = mine.poll(limit=1)
    assert held.attempt == 3
    first.send("t", b"1")
    machine.kill()
    other = machine.server.connect().consumer("t", group="g")
    assert other.poll() == []
    held.ack()
    assert [each.body for each in other.poll()] == [b"1"]


def test_an_engine_that_has_failed_loses_no_consumer_of_a_client(machine: Machine) -> None:
    """It refuses to let the consumer join, and must not say that its leases are lost."""
    client = machine.server.connect()
    client.create_topic("t")
    consumer = client.consumer("t", group="g")
    machine.kill()
    faults = FaultDisk(CrashDisk())
    with opened(faults, machine.clock) as failed:
        faults.fail("write", persistently=True)
        with pytest.raises(EngineFailed):
            failed.send("t", b"0")
        machine.server.serve(failed)
        with pytest.raises(EngineFailed):
            consumer.poll()
        machine.server.close()
