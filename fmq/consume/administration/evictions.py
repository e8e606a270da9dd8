"""What an operator does about a member that hangs: its messages go to others, or it goes itself.

Neither is in the journal: who holds what is known in memory alone. The log says who did it, and
why.
"""

from __future__ import annotations

import logging
from functools import partial

from fmq.arguments.names import check_name
from fmq.consume.groups.groups import Groups
from fmq.errors import MemberPutOut, UnknownMember
from fmq.steps.call_steps import Steps
from fmq.store.bytes.content import text_bytes
from fmq.tx.commands.limits import REASON_BYTES_MAX
from fmq.tx.commands.writer import Writer
from fmq.tx.looks.messages import Messages

logger = logging.getLogger("fmq.groups")


class Evictions:
    """Takes messages away from members, when an operator asks for that."""

    def __init__(self, writer: Writer, groups: Groups, messages: Messages) -> None:
        self._writer = writer
        self._groups = groups
        self._messages = messages
        # Group and name of each member that was put out.
        self._out: set[tuple[str, str]] = set()

    def releasing(self, group: str, member: str, by: str, reason: str) -> Steps[int]:
        """Redeliver the messages that `member` holds, and return their number. The member stays in
        the group. Raises UnknownMember.
        """
        count: int = yield partial(self._take, group, member, by, reason, is_out=False)
        return count

    def putting_out(self, group: str, member: str, by: str, reason: str) -> Steps[int]:
        """Take `member` out of the group for good. Redeliver the messages that it holds, and return
        their number: 0 if it was put out before. Raises UnknownMember.
        """
        count: int = yield partial(self._take, group, member, by, reason, is_out=True)
        return count

    def _take(self, group: str, name: str, by: str, reason: str, *, is_out: bool) -> int:
        by = check_name("by", by)
        text_bytes("reason", reason, REASON_BYTES_MAX)
        queue, groups = self._writer.commit_queue, self._groups
        with queue.lock, queue.changing:
            room = groups.rooms.get(group)
            member = None if room is None else room.members.get(name)
            if member is None and is_out and (group, name) in self._out:
                return 0  # a client whose answer was lost asks again
            if member is None:
                raise UnknownMember(group, name)
            held = groups.holds.held_by(group, member)
            if is_out:
                self._out.add((group, name))
                member.refusal = MemberPutOut(group, name, by, reason)
                groups.rooms.leave(group, member)
                member.stir()
            else:
                groups.holds.redeliver(group, member)
            self._messages.wake()
        count = sum(hold.end - hold.first for *_, hold in held)
        did = "was put out" if is_out else "was made to give back what it had"
        logger.warning(
            "member %r of group %r %s, %s messages, by %s: %s", name, group, did, count, by, reason
        )
        return count
