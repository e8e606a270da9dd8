"""`fmq salvage`: what is sound in a new directory, and a list of what is not."""

from pathlib import Path

from tests.cli.command import fmq_json, fmq_process


def test_all_of_a_sound_directory_is_copied_with_0(shop: Path, tmp_path: Path) -> None:
    said = fmq_json("salvage", shop, tmp_path / "new")
    assert (said.code, said.of("salvage")[0]["ok"]) == (0, True)
    old, new = (fmq_json("verify", each).of("report")[0] for each in (shop, tmp_path / "new"))
    assert {**old, "path": ""} == {**new, "path": ""}


def test_lost_messages_are_listed_and_the_exit_code_is_1(segments: Path, tmp_path: Path) -> None:
    second = sorted(segments.glob("*.seg"))[1]
    data = bytearray(second.read_bytes())
    data[80] ^= 1
    data[81] ^= 1
    second.write_bytes(data)
    before = {each.name: each.read_bytes() for each in segments.iterdir() if each.is_file()}
    said = fmq_json("salvage", segments, tmp_path / "new")
    assert said.code == 1
    assert second.name in {each["file"] for each in said.of("problem")}
    assert said.of("lost")
    assert fmq_json("verify", tmp_path / "new").code == 0
    assert before == {each.name: each.read_bytes() for each in segments.iterdir() if each.is_file()}


def test_a_directory_that_holds_something_is_refused_with_3(shop: Path) -> None:
    done = fmq_process("salvage", shop, shop)
    assert (done.returncode, "new or empty directory" in done.stderr) == (3, True)
