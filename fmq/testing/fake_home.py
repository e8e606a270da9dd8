"""The objects of a home in memory, with everything that real storage may do to its callers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fmq.home.objects import KeyTaken, NoAnswer

MANY_BYTES = 64 << 20


class FakeObjects:
    """Implements Objects. Copies of the same objects are other machines' ways to one home.

    `before` is called ahead of each call, with a line that says what it is: there a test lets
    another machine run, or ends this one. `after` is called when it was carried out.
    """

    def __init__(
        self, objects: dict[str, bytes] | None = None, *, object_bytes_max: int = MANY_BYTES
    ) -> None:
        """`objects` are those of another FakeObjects, to share them."""
        self.address = "fake://home"
        self.object_bytes_max = object_bytes_max
        self.objects: dict[str, bytes] = {} if objects is None else objects
        self.before: Callable[[str], None] = lambda what: None
        self.after: Callable[[str], None] = lambda what: None
        self.lost_answers: set[int] = set()
        """The numbers of the calls whose answer is lost after they were carried out."""
        self.lost_calls: set[int] = set()
        """The numbers of the calls that do not arrive."""
        self.late_calls: set[int] = set()
        """The numbers of the creations that have no answer, and arrive when `arrive` is called."""
        self.under_way: list[tuple[str, bytes]] = []
        """What has not arrived yet. Ways to one home may share the list."""
        self.honours_conditions = True
        self.calls = 0

    def _called(self, what: str) -> Callable[[], None]:
        """Return the function to call at the end, which loses the answer if it is to be lost."""
        self.before(what)
        number, self.calls = self.calls, self.calls + 1
        if number in self.lost_calls:
            raise NoAnswer(f"call {number} did not arrive: {what}")

        def end() -> None:
            self.after(what)
            if number in self.lost_answers:
                raise NoAnswer(f"the answer of call {number} was lost: {what}")

        return end

    def create(self, key: str, data: bytes) -> None:
        assert len(data) <= self.object_bytes_max
        number = self.calls
        end = self._called(f"create {key}")
        if number in self.late_calls:
            self.under_way.append((key, bytes(data)))
            raise NoAnswer(f"call {number} is late: create {key}")
        if key in self.objects and self.honours_conditions:
            end()
            raise KeyTaken
        self.objects[key] = bytes(data)
        end()

    def arrive(self) -> None:
        """Let what is under way arrive."""
        while self.under_way:
            self.objects.setdefault(*self.under_way.pop(0))

    def read(self, key: str) -> bytes | None:
        end = self._called(f"read {key}")
        found = self.objects.get(key)
        end()
        return found

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        end = self._called(f"read {keys[0]}...")
        found: list[bytes] = []
        for key in keys:
            if key not in self.objects:
                break
            found.append(self.objects[key])
        end()
        return found

    def names(self, folder: str) -> list[str]:
        end = self._called(f"names {folder}")
        start = f"{folder}/"
        found = sorted(key.removeprefix(start) for key in self.objects if key.startswith(start))
        end()
        return found

    def remove(self, keys: Sequence[str]) -> None:
        """Remove one after the other: each removal is a call, so a machine may stop between two."""
        for key in keys:
            end = self._called(f"remove {key}")
            self.objects.pop(key, None)
            end()

    def close(self) -> None:
        """Do nothing: the objects stay."""
