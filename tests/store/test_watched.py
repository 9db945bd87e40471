"""A warehouse that is looked at again and again. If one of these fails, a sensor is slow, or goes by old positions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tables import commit
from velo_dagster.store import watched
from velo_dagster.store.record import Record
from velo_dagster.store.table import ForeignChange, Table
from velo_dagster.store.watched import WatchedWarehouse


def record(load: int) -> Record:
    return Record(load, "a", "load", "bulk", "append", "", "f", {"source": {"load": load}})


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The logs that were read; whatever changed counts as settled."""
    found: list[str] = []
    opened = Table.opened

    def counted(self: Table):
        found.append(self.name)
        return opened(self)

    monkeypatch.setattr(Table, "opened", counted)
    monkeypatch.setattr(watched, "SETTLED_SECONDS", -1.0)
    return found


def newest(warehouse: WatchedWarehouse) -> int | None:
    found = warehouse.table("t").record()
    return found.load if found is not None else None


def test_a_log_is_read_again_only_when_it_has_changed(tmp_path: Path, reads: list[str]):
    warehouse = WatchedWarehouse(str(tmp_path))
    assert newest(warehouse) is None
    commit(warehouse.table("t"), record(1))
    assert [newest(warehouse) for _ in range(3)] == [1, 1, 1]
    commit(warehouse.table("t"), record(2))
    assert [newest(warehouse) for _ in range(3)] == [2, 2, 2]
    assert len(reads) == 3, "without a table, and once for each load"


def test_a_table_that_was_made_anew_is_another(tmp_path: Path, reads: list[str]):
    warehouse = WatchedWarehouse(str(tmp_path))
    commit(warehouse.table("t"), record(7))
    assert newest(warehouse) == 7
    shutil.rmtree(tmp_path / "t")
    assert newest(warehouse) is None
    commit(warehouse.table("t"), record(1))
    assert newest(warehouse) == 1


def test_what_has_only_just_changed_is_read_again(tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch):
    """Its time may be that of the next commit, too."""
    monkeypatch.setattr(watched, "SETTLED_SECONDS", 60.0)
    warehouse = WatchedWarehouse(str(tmp_path))
    commit(warehouse.table("t"), record(1))
    assert [newest(warehouse) for _ in range(2)] == [1, 1]
    assert len(reads) == 2


def test_a_change_from_outside_is_seen(tmp_path: Path, reads: list[str]):
    from deltalake import DeltaTable

    warehouse = WatchedWarehouse(str(tmp_path))
    commit(warehouse.table("t"), record(1))
    assert newest(warehouse) == 1
    DeltaTable(str(tmp_path / "t")).delete()
    with pytest.raises(ForeignChange):
        newest(warehouse)
    trusted = warehouse.table("t").record(trusting=True)
    assert trusted is not None and trusted.load == 1
    with pytest.raises(ForeignChange):
        newest(warehouse)
