"""Bugs of a home. The tier `home` finds them, or a test that the bug names."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier home --rounds 60"
TWO = "tests/home/test_two_on_their_way.py"
FILES = "tests/home/test_floor_files.py"

OF_A_HOME = (
    Mutant(
        "an OWN is removed",
        "            if kind is EntryKind.OWN:  # rule 1\n",
        "            if False:\n",
        STORIES,
        more=(
            ("            if n >= end or n in self._owns_seen:\n", "            if n >= end:\n"),
        ),
    ),
    Mutant(
        "no look at the floor after an OWN",
        "        if floor is not None and floor.next > n:\n",
        "        if False:\n",
        tests="tests/home/test_rivals.py",
    ),
    Mutant(
        "the look at the floor comes before reading",
        "            entries = self._calls.asked(partial(self._objects.read_run, keys))\n"
        "            floor = self._calls.floor()\n",
        "            floor = self._calls.floor()\n"
        "            entries = self._calls.asked(partial(self._objects.read_run, keys))\n",
        tests="tests/home/test_rivals.py",
    ),
    Mutant(
        "what has no answer is taken for this engine's",
        "return None if found == entry else found",
        "return None",
        STORIES,
    ),
    Mutant(
        "what exists is taken for another machine's",
        "return None if found == entry else found",
        "return found",
        STORIES,
    ),
    Mutant(
        "the cache is written before the home",
        "        return self._directory.begin_write(base_of(self.name), offset, data, then)\n",
        "        then()\n"
        "        return self._directory.begin_write(base_of(self.name), offset, data, then)\n",
        STORIES,
    ),
    Mutant(
        "a floor names pieces that come later",
        "                calls.put(piece.key(base), data)\n",
        "                late.append((piece.key(base), data))\n",
        STORIES,
        more=(
            (
                "        most = calls.objects.object_bytes_max\n",
                "        late, most = [], calls.objects.object_bytes_max\n",
            ),
            (
                "            calls.put(key, data)\n",
                "            calls.put(key, data)\n        [calls.put(*each) for each in late]\n",
            ),
        ),
    ),
    Mutant(
        "a floor is there before its pieces",
        '    return {**pieces, key: _with_checksum({"format": IN_PIECES, **how})}\n',
        '    return {key: _with_checksum({"format": IN_PIECES, **how}), **pieces}\n',
        STORIES,
    ),
    Mutant(
        "the pieces of the newest floor are removed",
        'for name in objects.names("files") if int(name[:20]) < floor.next]',
        'for name in objects.names("files") if int(name[:20]) <= floor.next]',
        STORIES,
    ),
    Mutant(
        "a machine that lacks a piece of an old floor gives up",
        "            if data is not None and key == lacking:\n",
        "            if data is not None:\n",
        tests="tests/home/test_floor_in_pieces.py",
    ),
    Mutant(
        "a floor names files that were not put",
        "            self._calls.put(piece.key(name), part)\n",
        "",
        tests=FILES,
    ),
    Mutant(
        "a file is removed before the floor that names it no more",
        "        floor.files = self._files.put(cache.directory, floor)\n",
        "        floor.files = self._files.put(cache.directory, floor)\n"
        "        self._free_below(floor, dict(kinds))\n",
        tests=FILES,
    ),
    Mutant(
        "a fenced owner removes the files of a newer floor",
        'for name in objects.names("files") if int(name[:20]) < floor.next]',
        'for name in objects.names("files")]',
        tests=FILES,
    ),
    Mutant(
        "a checkpoint says more than the floor has",
        "    if checkpoint is None or checkpoint.applied_upto > files.end:\n",
        "    if checkpoint is None:\n",
        tests=FILES,
    ),
    Mutant(
        "a checkpoint of another store is taken",
        "    if not is_of_it or epoch not in ([], [header.epoch]):\n",
        "    if False:\n",
        tests=FILES,
    ),
    Mutant(
        "nobody looks at the checksum of what a home has",
        '                yield data if crc32(data) == int(key.rpartition("-")[2], 16) else None\n',
        "                yield data\n",
        tests=FILES,
    ),
    Mutant(
        "a reader believes that there was a second checkpoint",
        "        self._checkpoint = encode(found._replace(generation=1, clean=False))\n",
        "        self._checkpoint = encode(found)\n",
        tests=FILES,
    ),
    Mutant(
        "a store that has left its home was never synced",
        "            with closing(directory.open(name, write=True)) as file:\n"
        "                file.sync()\n",
        "            pass\n",
        tests="tests/home/test_cache.py -k becomes_a_store",
    ),
    Mutant(
        "a half append counts",
        "        if not entry.last:\n            self._half = half\n            return None\n",
        "        self._half = []\n",
        STORIES,
        more=(('data = b"".join(each.data for each in half)', "data = entry.data"),),
    ),
    Mutant(
        "a fenced owner removes the floor of the new one",
        "if int(name) < floor.next]",
        "if int(name) != floor.next]",
        STORIES,
    ),
    Mutant(
        "the cache is not made equal to the entries",
        "        if there != append.data:\n",
        "        if file.size() < append.offset:\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint outlives the bytes that it was derived from",
        '        if data.startswith(there.rstrip(b"\\0")) and there[:claimed] == data[:claimed]:\n',
        "        if True:\n",
        tests=FILES,
    ),
    Mutant(
        "an index that was taken outlives the bytes that it was derived from",
        "        self._bare.clear()\n",
        "",
        tests="tests/home/test_cache.py -k derived",
    ),
    Mutant(
        "not sent is said without a look at the floor",
        "            if floor is None or floor.next <= n or n in floor.owns:\n",
        "            if True:\n",
        tests="tests/home/test_rivals.py",
    ),
    Mutant(
        "the cache is not made equal to the pieces",
        "if zlib.crc32(data) != piece.crc or len(data) < size:",
        "if len(data) < size:",
        STORIES,
    ),
    Mutant(
        "a segment that the home has dropped stays in the cache",
        "            if is_segment(name) and base_of(name) not in history.segments:\n",
        "            if False:\n",
        STORIES,
    ),
    Mutant(
        "the slot after an OWN stays free",
        "        history.apply(self._calls.fill(n + 1, beat) or beat)\n",
        "",
        tests=TWO,
    ),
    Mutant(
        "an entry counts before the one that was begun earlier",
        "                self._wait_for(n)\n",
        "                pass\n",
        tests=TWO,
    ),
    Mutant(
        "three entries are on their way",
        "self._wait_for(n + 1 - ON_THEIR_WAY)",
        "self._wait_for(n - ON_THEIR_WAY)",
        tests=TWO,
    ),
    Mutant(
        "entries of an older term count",
        "        return entry.term == self.term\n",
        "        return True\n",
        tests=TWO,
    ),
    Mutant(
        "what is behind a write on its way is shown with it",
        "                while taken in self._away:  # the write before it is durable, too\n",
        "                while self._away:\n",
        tests=TWO,
    ),
    Mutant(
        "an owner that cannot reach its home hands out messages for ever",
        "        if now > self.hands_out_until:\n",
        "        if False:\n",
        tests="tests/home/test_standby.py",
    ),
    Mutant(
        "nobody stands by for a home that is away",
        "            if not is_away(error):\n",
        "            if True:\n",
        tests="tests/home/test_server_homes.py -k away",
    ),
    Mutant(
        "who stands by takes over from an owner that is heard again",
        "            if at is not None and history.next != at:\n",
        "            if False:\n",
        tests="tests/home/test_standby.py",
    ),
    Mutant(
        "the last sign of life of a paused owner came before its pause",
        "        if until < inf:\n",
        "        if self._monotonic() < self._until:\n",
        tests="tests/home/test_standby.py",
    ),
    Mutant(
        "a server goes on whose engine has failed",
        "        self.wake_all()\n        self.on_failed()\n",
        "        self.wake_all()\n",
        tests="tests/home/test_take_over.py -k server_ends",
    ),
    Mutant(
        "an engine that has failed says that leases are lost",
        "            if self._host.commit_queue.broken():\n",
        "            if False:\n",
        tests="tests/remote/test_reclaim.py",
    ),
    Mutant(
        "a move that was killed is not finished",
        "                if of_cache or not is_cache or _is_moving(log):\n",
        "                if of_cache or not is_cache:\n",
        tests="tests/home/test_killed_moves.py",
    ),
    Mutant(
        "another store is moved over what a home has",
        "            if self._bytes(append.base, append.offset, end) != append.data:\n",
        "            if False:\n",
        tests="tests/home/test_moving.py",
    ),
)
