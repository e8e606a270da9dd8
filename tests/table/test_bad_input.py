"""The error for a mistake of the caller is one sentence that says what to do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import fmq.table
from fmq.errors import BadOption, NotAStore, Unreadable
from tests.table.test_fleet import numbers, segments, ship, write


def read(path: Path | str, view: str = "messages", **how: Any) -> int:
    return int(fmq.table.read(str(path), view, **how).read_all().num_rows)


NOT_JOURNALS = {
    "nothing": "No such file or directory",
    "file": "Not a directory",
    "empty": r"no journal was ever begun here.* or .*/empty/\* for all of those in it",
    "foreign": r"no journal was ever begun here.* or .*/foreign/\* for all of those in it",
    "no*where": "no directory is called so. Nothing was read",
    "hdfs://name/data": "reads directories .* and no addresses",
}


def make_places(top: Path) -> None:
    (top / "file").write_text("x")
    (top / "empty").mkdir()
    (top / "foreign" / "shop").mkdir(parents=True)


@pytest.mark.parametrize("name", NOT_JOURNALS)
def test_a_directory_without_a_journal_is_refused_by_name(tmp_path: Path, name: str) -> None:
    make_places(tmp_path)
    path = name if ":" in name else f"{tmp_path}/{name}"
    with pytest.raises(NotAStore, match=NOT_JOURNALS[name]) as caught:
        read(path)
    assert path in str(caught.value)


def test_an_error_for_an_unknown_view_or_column_suggests_names(tmp_path: Path) -> None:
    write(tmp_path / "shop", count=1)
    with pytest.raises(BadOption, match=r"no view 'mesages'; did you mean messages"):
        read(tmp_path / "shop", "mesages")
    with pytest.raises(BadOption, match=r"no column of messages 'ofset'; did you mean offset"):
        read(tmp_path / "shop", columns=["topic", "ofset"])
    with pytest.raises(BadOption, match=r"no column of records 'zzz'. There are: position, kind"):
        read(tmp_path / "shop", "records", columns=["zzz"])


def test_a_file_url_is_accepted_as_a_path(tmp_path: Path) -> None:
    """Users of Spark write paths like this."""
    write(tmp_path / "a shop", count=2)
    assert read(f"file://{tmp_path}/a%20shop") == read(f"file:{tmp_path}/a%20shop") == 2


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors have working directories of their own."""
    from fmq.table.fleet import directories

    monkeypatch.chdir(tmp_path)
    assert directories(["shop", "./x/../shop"]) == [f"{tmp_path}/shop"]


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_an_unreadable_file_is_named_or_left_out(tmp_path: Path, kind: str) -> None:
    """The cases hold for root too: a directory in its place, or a link, which is never followed."""
    write(tmp_path / "shop")
    whole = ship(tmp_path / "shop", tmp_path / "shipped")
    bad = segments(whole)[1]
    if kind == "link":
        shutil.move(bad, tmp_path / "aside")
        os.symlink(tmp_path / "aside", bad)
    else:
        bad.unlink()
        bad.mkdir()
    with pytest.raises(Unreadable, match=str(whole)):
        read(whole)
    (row,) = fmq.table.read(str(whole), "damage").read_all().to_pylist()
    assert (row["segment"], row["position"]) == (bad.name, int(bad.stem))
    end, behind = row["position"], row["position"] + row["skipped_bytes"]
    shutil.copytree(tmp_path / "shop", tmp_path / "sound")
    expected = [
        int(each["body"][:5])
        for each in fmq.table.read(str(tmp_path / "sound")).read_all().to_pylist()
        if not end <= each["position"] < behind and each["position"] < int(last(tmp_path).stem)
    ]
    assert numbers(whole, permissive=True) == expected


def last(top: Path) -> Path:
    return segments(top / "shop")[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    write(tmp_path / "shop")
    segments(tmp_path / "shop")[0].chmod(0)
    with pytest.raises(Unreadable, match="Permission denied"):
        read(tmp_path / "shop")
