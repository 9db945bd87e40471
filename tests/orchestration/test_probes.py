"""Looks at sources: one tick looks at hundreds of them, and none may hold up the others."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from velo_dagster.orchestration import probes
from velo_dagster.orchestration.probes import Looker
from velo_dagster.orchestration.specs import ProjectSpecs, build_specs
from velo_dagster.orchestration.translator import VeloDagsterTranslator
from velo_dagster.plan.project import load_project
from velo_dagster.sources.contract import Position, Probe, Source
from velo_dagster.sources.files import FileSource
from velo_dagster.store.table import Warehouse


def specs(folder: Path, count: int) -> ProjectSpecs:
    (folder / "t.sql").write_text(
        "".join(f"CREATE TABLE t{n} AS SELECT * FROM file://d/{n}.csv;\n" for n in range(count))
    )
    return build_specs(load_project(folder), Warehouse(str(folder / "w")), VeloDagsterTranslator())


def test_each_source_stands_for_itself(tmp_path: Path):
    found = specs(tmp_path, 3)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/1.csv").write_text("a\n1\n")
    looks = {key.path[-1]: look for key, look in Looker(found).look_at(found.sources).items()}
    assert {name: look.ready for name, look in looks.items()} == {"d_0_csv": False, "d_1_csv": True, "d_2_csv": False}
    assert looks["d_0_csv"].category == "missing"
    assert "d/0.csv" in looks["d_0_csv"].message


def test_sources_of_one_server_are_asked_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []

    def together(cls: type, sources: Sequence[tuple[Source, Position | None]]) -> list[Probe]:
        calls.append(len(sources))
        return [Probe(True, "there", None) for _ in sources]

    monkeypatch.setattr(FileSource, "server", property(lambda self: "one"))
    monkeypatch.setattr(FileSource, "probe_together", classmethod(together))
    found = specs(tmp_path, 20)
    assert all(look.ready for look in Looker(found).look_at(found.sources).values())
    assert calls == [20]


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The first source answers only once the event is set."""
    hang, probe = threading.Event(), FileSource.probe

    def hanging(self: FileSource, since: Position | None = None) -> Probe:
        if self.label.endswith("/0.csv"):
            hang.wait()
        return probe(self, since)

    monkeypatch.setattr(FileSource, "probe", hanging)
    monkeypatch.setattr(probes, "SECONDS", 0.5)
    yield hang
    hang.set()


def looks_of(looker: Looker, found: ProjectSpecs) -> dict[str, Probe]:
    return {key.path[-1]: look for key, look in looker.look_at(found.sources).items()}


def test_a_source_that_hangs_holds_up_no_other(tmp_path: Path, hang: threading.Event, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probes, "LOOKERS", 1)
    found = specs(tmp_path, 3)
    looks = looks_of(Looker(found), found)
    assert [looks[f"d_{n}_csv"].category for n in range(3)] == ["network", "missing", "missing"]
    assert looks["d_0_csv"].message.startswith("It did not answer within")


def test_what_hangs_is_not_looked_at_again_until_it_has_ended(tmp_path: Path, hang: threading.Event):
    """Each tick would leave one more thread behind."""
    found = specs(tmp_path, 2)
    looker = Looker(found)
    looks_of(looker, found)
    threads = {one for one in threading.enumerate() if one.name == "velo-probe"}
    again = looks_of(looker, found)
    assert re.fullmatch(r"A look that began \d+ s ago has not ended, so no other was begun\.", again["d_0_csv"].message)
    assert (again["d_0_csv"].category, again["d_1_csv"].category) == ("network", "missing")
    for other in {one for one in threading.enumerate() if one.name == "velo-probe"} - threads:
        other.join(5)
        assert not other.is_alive(), "it hangs, too"
    hang.set()
    for thread in threads:
        thread.join()
    assert looks_of(looker, found)["d_0_csv"].category == "missing"


def test_a_tick_ends_however_many_hang(tmp_path: Path, hang: threading.Event, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probes, "LOOKERS", 1)
    monkeypatch.setattr(probes, "ALL_SECONDS", 0.5)
    monkeypatch.setattr(probes, "SECONDS", 60.0)
    found = specs(tmp_path, 2)
    looks = looks_of(Looker(found), found)
    assert "so there was no time to look at it" in looks["d_1_csv"].message


def test_a_source_that_cannot_be_opened_is_told_and_holds_up_no_other(tmp_path: Path):
    (tmp_path / "t.sql").write_text(
        "CREATE TABLE a AS SELECT * FROM 'file://${NOT_SET_ANYWHERE}/a.csv'; CREATE TABLE b AS SELECT * FROM file://b.csv;"
    )
    (tmp_path / "b.csv").write_text("x\n1\n")
    found = build_specs(load_project(tmp_path), Warehouse(str(tmp_path / "w")), VeloDagsterTranslator())
    looks = [look for _, look in sorted(Looker(found).look_at(found.sources).items())]
    assert sorted(look.ready for look in looks) == [False, True]
    assert any("NOT_SET_ANYWHERE" in look.message for look in looks)
