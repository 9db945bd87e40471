"""A pattern means exactly the files that its user expects: one too few loses rows, one too many adds foreign ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from velo_dagster.sources.errors import SourceMisconfigured
from velo_dagster.sources.files_listing import list_files, locate

TREE = [
    "a.csv",
    "b.csv",
    "ab.csv",
    "c.json",
    "x[1].csv",
    ".hidden.csv",
    "_part.csv",
    "2024/01/a.csv",
    "2024/02/b.csv",
    "2025/01/a.csv",
    "_tmp/a.csv",
    ".git/a.csv",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.csv", ["a.csv"]),
        ("*.csv", ["a.csv", "ab.csv", "b.csv", "x[1].csv"]),
        ("?.csv", ["a.csv", "b.csv"]),
        ("[ab].csv", ["a.csv", "b.csv"]),
        ("[!a].csv", ["b.csv"]),
        ("{a,b}.csv", ["a.csv", "b.csv"]),
        ("{a,{b,c}}.*", ["a.csv", "b.csv", "c.json"]),
        ("x[1].csv", ["x[1].csv"]),
        ("**/*.csv", ["2024/01/a.csv", "2024/02/b.csv", "2025/01/a.csv", "a.csv", "ab.csv", "b.csv", "x[1].csv"]),
        ("2024/**", ["01/a.csv", "02/b.csv"]),
        ("2024/*/a.csv", ["01/a.csv"]),
        ("20*/01/*", ["2024/01/a.csv", "2025/01/a.csv"]),
        ("{2024/01,2025/01}/a.csv", ["2024/01/a.csv", "2025/01/a.csv"]),
        ("_*.csv", ["_part.csv"]),
        (".*.csv", [".hidden.csv"]),
        ("_part.csv", ["_part.csv"]),
        ("2024/01", ["a.csv"]),
        ("2024/01/", ["a.csv"]),
        ("nothing-*", []),
    ],
)
def test_patterns(tree: Path, pattern: str, names: list[str]) -> None:
    for written in (pattern, f"file://{tree}/{pattern}", f"file:{pattern}"):
        assert list(list_files(locate(written, tree))) == names


def test_a_folder_means_the_files_right_in_it(tree: Path) -> None:
    assert list(list_files(locate(".", tree))) == ["a.csv", "ab.csv", "b.csv", "c.json", "x[1].csv"]


def test_sizes_and_links(tree: Path) -> None:
    (tree / "link.csv").symlink_to(tree / "a.csv")
    (tree / "broken.csv").symlink_to(tree / "nowhere")
    (tree / "2024/circle").symlink_to(tree)
    assert list_files(locate("l*.csv", tree))["link.csv"].size == len("a.csv")
    assert list(list_files(locate("b*.csv", tree))) == ["b.csv"]
    assert list(list_files(locate("2024/**", tree))) == ["01/a.csv", "02/b.csv"]


@pytest.mark.parametrize("pattern", ["nowhere/*.csv", "nowhere.csv", "nowhere/a.csv"])
def test_a_missing_base_is_said(tree: Path, pattern: str) -> None:
    with pytest.raises(FileNotFoundError):
        list_files(locate(pattern, tree))


def test_a_name_that_is_no_text_is_said(tree: Path) -> None:
    (tree / os.fsdecode(b"bad\xff.csv")).write_text("x")
    with pytest.raises(SourceMisconfigured, match="not UTF-8"):
        list_files(locate("bad*", tree))
