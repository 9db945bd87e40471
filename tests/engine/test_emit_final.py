"""EMIT FINAL: a window's row appears when its end is behind the watermark, and what is late goes as the statement says.

If one of these fails, somebody has acted upon a sum that was called final and is not, or a reload shows another one.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from tests.harness import Interpreting, Play, Rows
from velo_dagster.errors import VeloError

START = datetime(1970, 1, 1)
Row = tuple[int, str, int]
"""Seconds since 1970, who, amount."""


def line(row: Row) -> str:
    return f"{(START + timedelta(seconds=row[0])).isoformat()},{row[1]},{row[2]}\n"


def test_a_final_row_appears_once_and_stays(play: Play):
    """By hand. Windows of a minute; at 1:30 the first minute is over; what comes for it afterwards is late."""
    final = "AS SELECT window_start, COUNT(*) AS n, SUM(v) AS v FROM {} WINDOW TUMBLING(ts, 1m) EMIT FINAL WITH"
    play.write(
        "t.sql",
        "CREATE TABLE events AS SELECT * FROM file://t.csv;\n"
        f"CREATE TABLE dropped {final.format('events')} ('late.data.strategy' = 'drop');\n"
        f"CREATE TABLE rejected {final.format('file://t.csv')} ('late.data.strategy' = 'reject',\n"
        "  'watermark.max_out_of_orderness' = '20s');\n"
        f"CREATE TABLE included {final.format('events')} ('late.data.strategy' = 'include');\n",
    )
    play.write("t.csv", "ts,who,v\n" + line((10, "a", 1)) + line((50, "a", 2)))
    play.loaded()
    names = ("dropped", "rejected", "included")
    assert all(not play.rows(name) for name in names), "no window has ended"

    # 20 s is behind 50 s: late without an allowance, and 30 s late with one of 20 s is too late as well.
    play.append("t.csv", line((20, "a", 4)) + line((35, "a", 8)) + line((70, "a", 16)))
    play.loaded()
    first = START
    assert play.rows("dropped") == Counter({(Decimal(2), Decimal(3), first): 1})
    assert not play.rows("rejected"), "the watermark is at 0:50"
    assert play.rows("included") == Counter({(Decimal(4), Decimal(15), first): 1})
    assert play.rejected("rejected") == Counter(
        {
            (
                "t.csv:4",
                "late: 1970-01-01 00:00:20 is more than 20s before 1970-01-01 00:00:50",
                '{"ts":"1970-01-01T00:00:20.000Z","who":"a","v":4}',
            ): 1
        }
    )

    play.append("t.csv", line((30, "a", 32)) + line((80, "a", 64)))
    reports = play.loaded()
    assert reports["rejected"].rejected == 2
    assert play.rows("dropped") == Counter({(Decimal(2), Decimal(3), first): 1}), "it has been final before"
    assert play.rows("rejected") == Counter({(Decimal(3), Decimal(11), first): 1})
    assert play.rows("included") == Counter({(Decimal(5), Decimal(47), first): 1})
    assert {place for place, *_ in play.rejected("rejected")} == {"t.csv:4", "t.csv:7"}

    fresh = play.reloaded()
    for name in names:
        assert play.rows(name) == fresh.rows(name), name
    assert play.rejected("rejected") == fresh.rejected("rejected")


# -- one history, cut in many ways ------------------------------------------------------------------------------------

STATEMENTS = """
CREATE TABLE events AS SELECT * FROM file://data/*.csv
  WITH ('event.time.field' = 'ts', 'watermark.max_out_of_orderness' = '7s');
CREATE TABLE tumbling AS SELECT window_start, window_end, SUM(v) AS v FROM events
  WINDOW TUMBLING(20s) HAVING COUNT(*) > 0 EMIT FINAL WITH ('late.data.strategy' = 'drop');
CREATE TABLE sliding AS SELECT who, window_start, window_end, SUM(v) AS v FROM events
  WINDOW SLIDING(30s, 10s) GROUP BY who EMIT FINAL WITH ('late.data.strategy' = 'drop');
CREATE TABLE session AS SELECT who, window_start, window_end, SUM(v) AS v FROM events
  WINDOW SESSION(5s) GROUP BY who EMIT FINAL WITH ('late.data.strategy' = 'drop');
CREATE TABLE included AS SELECT window_start, window_end, SUM(v) AS v FROM events
  WINDOW TUMBLING(20s) EMIT FINAL;
"""
ALLOWANCE = 7
Files = dict[str, list[Row]]


def on_time(files: Files) -> list[Row]:
    kept = []
    for rows in files.values():
        greatest = None
        for row in rows:
            if greatest is None or row[0] >= greatest - ALLOWANCE:
                kept.append(row)
            greatest = row[0] if greatest is None else max(greatest, row[0])
    return kept


def windows(rows: Iterable[Row], size: int, advance: int, keyed: bool) -> dict[tuple[str, int, int], int]:
    sums: dict[tuple[str, int, int], int] = defaultdict(int)
    for second, who, amount in rows:
        start = second - second % advance
        while start > second - size:
            sums[(who if keyed else "", start, start + size)] += amount
            start -= advance
    return sums


def sessions(rows: Sequence[Row], gap: int) -> dict[tuple[str, int, int], int]:
    sums = {}
    for who in {row[1] for row in rows}:
        current: list[Row] = []
        for row in [*sorted(row for row in rows if row[1] == who), None]:
            if current and (row is None or row[0] - current[-1][0] > gap):
                sums[(who, current[0][0], current[-1][0] + gap)] = sum(one[2] for one in current)
                current = []
            if row is not None:
                current.append(row)
    return sums


def expected(files: Files) -> dict[str, Rows]:
    """What the definitions say, computed row by row from what has been delivered."""
    everything = [row for rows in files.values() for row in rows]
    counted = on_time(files)
    watermark = max(row[0] for row in everything) - ALLOWANCE

    def table(sums: dict[tuple[str, int, int], int], keyed: bool, strictly: bool = False) -> Rows:
        def moment(second: int) -> datetime:
            return START + timedelta(seconds=second)

        shown = {key: total for key, total in sums.items() if key[2] < watermark + (0 if strictly else 1)}
        return Counter(
            (Decimal(total), *((who,) if keyed else ()), moment(end), moment(start))
            for (who, start, end), total in shown.items()
        )

    return {
        "tumbling": table(windows(counted, 20, 20, False), False),
        "sliding": table(windows(counted, 30, 10, True), True),
        "session": table(sessions(counted, 5), True, strictly=True),
        "included": table(windows(everything, 20, 20, False), False),
    }


def history(rng: random.Random, names: Sequence[str]) -> list[tuple[str, Row]]:
    """Rows in the order in which they are delivered; the times of each file go on, with some that lag behind."""
    clock = dict.fromkeys(names, 20)
    made = []
    for _ in range(rng.randint(25, 40)):
        name = rng.choice(names)
        clock[name] += rng.choice((0, 1, 2, 5, 6, 9))
        lag = rng.choice((0, 0, 0, 3, 7, 8, 20))
        made.append((name, (max(clock[name] - lag, 0), rng.choice("ab"), rng.randint(1, 99))))
    return made


def play_history(play: Play, names: Sequence[str], steps: int) -> list[dict[str, Rows]]:
    """Deliver a history in random cuts; after each, every table is what the definitions say. All tables, per step."""
    play = replace(play, engine=Interpreting(play.engine))  # pyright: ignore[reportArgumentType]
    play.write("t.sql", STATEMENTS)
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    rows = history(rng, names)
    cuts = sorted(rng.sample(range(1, len(rows)), steps - 1))
    files: Files = {}
    seen = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        for name, row in rows[start:end]:
            if name not in files:
                play.append(f"data/{name}.csv", "ts,who,v\n")
            files.setdefault(name, []).append(row)
            play.append(f"data/{name}.csv", line(row))
        play.loaded()
        answers = expected(files)
        for name, answer in answers.items():
            assert play.rows(name) == answer, f"{name} after {end} of {len(rows)} rows, seed {seed}"
        seen.append(answers)
    fresh = play.reloaded()
    for name in expected(files):
        assert play.rows(name) == fresh.rows(name), f"{name} against a full reload, seed {seed}"
    return seen


def test_cuts_do_not_show(play: Play):
    """Three files that grow side by side, each with a clock of its own, delivered in random pieces."""
    play_history(play, ("a", "b", "c"), steps=3)


def test_what_is_final_never_changes_while_a_file_grows(play: Play):
    seen = play_history(play, ("a",), steps=4)
    for name in ("tumbling", "sliding", "session"):
        for before, after in pairwise(seen):
            assert not before[name] - after[name], f"{name} has taken back a final row"


def test_the_definitions_keep_their_promise():
    """Hundreds of histories, by the definitions alone: under `drop`, no final row of one file is ever taken back."""
    for seed in range(300):
        rows = history(random.Random(seed), ("a",))
        before: dict[str, Rows] = {}
        for end in range(1, len(rows) + 1):
            now = expected({"a": [row for _, row in rows[:end]]})
            for name in ("tumbling", "sliding", "session"):
                assert not before.get(name, Counter()) - now[name], (seed, end, name)
            before = now


def test_one_late_row_changes_no_final_window_of_a_join(play: Play):
    """The clock is that of the input whose column the window names; the other one only joins."""
    play.write("names.csv", "who,name\na,Ann\n")
    play.grown(
        "CREATE TABLE names AS SELECT * FROM file://names.csv;\n"
        "CREATE TABLE t AS SELECT n.name, window_end, COUNT(*) AS n FROM file://t.csv e JOIN names n ON e.who = n.who\n"
        "WINDOW TUMBLING(e.ts, 1m) GROUP BY n.name EMIT FINAL WITH ('late.data.strategy' = 'drop');",
        {"t.csv": "ts,who,v\n" + line((10, "a", 1)) + line((20, "z", 1)) + line((65, "a", 1))},
        {"t.csv": line((30, "a", 1))},
    )
    assert play.rows("t") == Counter({(Decimal(1), "Ann", START + timedelta(minutes=1)): 1})


def test_a_wrong_value_from_the_environment_is_told_before_spark_starts(play: Play):
    play.write(
        "t.sql",
        "CREATE TABLE t AS SELECT COUNT(*) AS n FROM file://t.csv WINDOW TUMBLING(ts, 1m) EMIT FINAL\n"
        "WITH ('late.data.strategy' = '${LATE:-never}');",
    )
    play.write("t.csv", "ts,who,v\n" + line((10, "a", 1)))
    error = play.load()["t"].error
    assert isinstance(error, VeloError) and error.code == "E305" and "t.sql:1:" in error.render()
    assert "'late.data.strategy' = '${LATE:-never}'" in error.render(), "what a variable stands for is not shown"
    assert not list((play.folder / play.warehouse).glob("t*"))
