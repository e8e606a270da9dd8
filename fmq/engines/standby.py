"""A machine that stands by for the owner of a home, and takes over when nothing is heard of it."""

from __future__ import annotations

from collections.abc import Mapping

from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.engines.engine import Engine
from fmq.engines.startup import disk_of, open
from fmq.errors import BadOption, FmqError
from fmq.errors.storage_errors import unreadable_within
from fmq.home.home_addresses import check_address, home_log
from fmq.home.home_follower import HomeFollower
from fmq.remote.owner_question import OwnerQuestion

BEATS = 3  # signs of life that an owner gives within the seconds after which it is given up


class Standby:
    """The directory is locked, and follows the home, until it is closed or opened."""

    def __init__(
        self,
        home: str,
        path: str,
        options: Options | None,
        clock: Clock,
        *,
        after: float,
        serves_at: str,
        token_file: str | None = None,
        tls_ca: str | None = None,
    ) -> None:
        """`after` seconds of silence are enough. `serves_at` is where this machine will serve.

        Raises Locked, HomeRefused, HomeBehind or Unreadable.
        """
        self._path = path
        self._options = options
        self._clock = clock
        self._after = after
        self._speaks_tls = tls_ca is not None
        disk = disk_of(options or Options())
        log = home_log(disk, check_address(home), clock, address=serves_at)
        try:
            with unreadable_within(path):
                self._follower = HomeFollower(disk, path, log, clock)
        except BaseException:
            log.close()
            raise
        self._question = OwnerQuestion(self._follower, after / BEATS, clock, token_file, tls_ca)

    @property
    def refusal(self) -> FmqError | None:
        """Why the owner, which is alive, does not listen to this machine."""
        return self._question.refusal

    @property
    def has_address(self) -> bool:
        """Whether the home says where its owner serves. An owner that does not serve cannot be
        asked, so its silence means nothing.
        """
        return "address" in self._follower.owner

    def may_take_over(self) -> bool:
        """Follow the home. Return whether its owner has ended, or was silent for too long. Raises
        BadOption if this machine can hear nothing of the owner, whose silence means nothing then.
        """
        silent = self._follower.look()
        if self._follower.is_free:
            return True
        owner = self._follower.owner
        if owner.get("tls") and not self._speaks_tls:
            raise BadOption(
                f"{self._follower.address}: its owner served over TLS at {owner.get('address')} "
                "when it last said so. Without TLS this machine would hear nothing of it, and take "
                "over from an owner that may be well. Nothing was changed. Name the certificates "
                "to trust, --tls-ca FILE. Or, if you know that it is gone, take over by hand: "
                f"fmq take-over {self._follower.address}"
            )
        return silent >= self._after and self.has_address and self.refusal is None

    def open(self, resolve: Mapping[str, object] | None = None) -> Engine:
        """Take over the home. Raises TakenOver if another machine was faster, or the owner has said
        something. Either way, this object is used up.
        """
        self._question.close()
        disk = self._follower.disk_to_take_over()
        return open(self._path, self._options, disk=disk, clock=self._clock, resolve=resolve)

    def close(self) -> None:
        """Stand by no longer."""
        self._question.close()
        self._follower.close()
