"""`fmq backup` and `fmq restore`, beside an engine that goes on."""

from pathlib import Path

import fmq
from tests.cli.command import fmq_json, fmq_process


def test_a_backup_is_made_beside_an_engine_and_restored(shop: Path, tmp_path: Path) -> None:
    backup, again = tmp_path / "backup", tmp_path / "again"
    with fmq.open(shop, background=False) as engine:
        code, lines, error = fmq_json("backup", shop, backup)
        assert (code, error) == (0, "")
        made = next(line for line in lines if line["what"] == "backup")
        engine.send("orders", b"later")
    assert fmq_json("backup", shop, backup).of("backup")[0]["position"] > made["position"]
    said = fmq_json("restore", backup, again, "--to", str(made["position"]))
    assert said.of("restore")[0]["position"] == made["position"]
    assert fmq_json("verify", again).of("report")[0]["messages"] == 5


def test_a_restore_says_when_its_last_messages_are_shown(shop: Path, tmp_path: Path) -> None:
    with fmq.open(shop, background=False) as engine:
        engine.send("orders", b"last")
        fmq.backup(shop, tmp_path / "backup")
    said = fmq_json("restore", tmp_path / "backup", tmp_path / "again")
    assert "fmq.open(" in said.error
    before = fmq_json("read", tmp_path / "again", "orders")
    assert "1 append behind position" in before.error
    fmq.open(tmp_path / "again", background=False).close()
    after = fmq_json("read", tmp_path / "again", "orders")
    assert (len(after.lines), after.error) == (len(before.lines) + 1, "")


def test_damage_is_listed_and_the_exit_code_is_1(segments: Path, tmp_path: Path) -> None:
    second = sorted(segments.glob("*.seg"))[1]
    data = bytearray(second.read_bytes())
    data[600] ^= 1
    second.write_bytes(data)
    said = fmq_json("backup", segments, tmp_path / "backup")
    assert said.code == 1
    assert second.name in said.of("problem")[0]["reason"]


def test_a_directory_that_is_no_backup_is_refused_with_3(shop: Path, tmp_path: Path) -> None:
    done = fmq_process("restore", shop, tmp_path / "new")
    assert (done.returncode, "it is no backup" in done.stderr) == (3, True)
    done = fmq_process("restore", shop, tmp_path / "new", "--to", "yesterday")
    assert done.returncode == 2
