"""Names that become one column are told apart with advice that fits."""

from __future__ import annotations

import pytest

from velo_dagster.sql.names import NameClash, sanitise_all


def test_two_columns_of_one_name_come_from_a_join_more_often_than_not():
    with pytest.raises(NameClash) as clash:
        sanitise_all(["id", "amount", "ID"])
    assert "EXCEPT (ID)" in clash.value.steps[1] and "USING (ID)" in clash.value.steps[2]


def test_names_that_only_become_one_are_renamed():
    with pytest.raises(NameClash) as clash:
        sanitise_all(["order id", "order_id"])
    assert len(clash.value.steps) == 1
