"""A small wholesale business: the eight tables of TPC-H with a few thousand lines, from a fixed seed.

Keys refer to rows that exist. Values that the queries ask for are frequent, so that every query has an answer.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

Row = Sequence[Any]

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3)),
    *(
        ("GERMANY", 3),
        ("INDIA", 2),
        ("INDONESIA", 2),
        ("IRAN", 4),
        ("IRAQ", 4),
        ("JAPAN", 2),
        ("JORDAN", 4),
        ("KENYA", 0),
    ),
    *(
        ("MOROCCO", 0),
        ("MOZAMBIQUE", 0),
        ("PERU", 1),
        ("CHINA", 2),
        ("ROMANIA", 3),
        ("SAUDI ARABIA", 4),
        ("VIETNAM", 2),
    ),
    *(("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1)),
)
ASKED_NATIONS = (2, 3, 6, 7, 8, 18, 20, 20)
COLUMNS = {
    "region": "r_regionkey r_name r_comment",
    "nation": "n_nationkey n_name n_regionkey n_comment",
    "supplier": "s_suppkey s_name s_address s_nationkey s_phone s_acctbal s_comment",
    "customer": "c_custkey c_name c_address c_nationkey c_phone c_acctbal c_mktsegment c_comment",
    "part": "p_partkey p_name p_mfgr p_brand p_type p_size p_container p_retailprice p_comment",
    "partsupp": "ps_partkey ps_suppkey ps_availqty ps_supplycost ps_comment",
    "orders": "o_orderkey o_custkey o_orderstatus o_totalprice o_orderdate o_orderpriority o_clerk o_shippriority "
    "o_comment",
    "lineitem": "l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag "
    "l_linestatus l_shipdate l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment",
}
SUPPLIERS, CUSTOMERS, PARTS = 40, 150, 160
TODAY = date(1995, 6, 17)


class Commerce:
    """Makes rows and writes them; orders come in files of their own, so that some can change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pick = random.Random(22)

    def bulk(self) -> None:
        self.write("region", "r", [(key, name, "far away") for key, name in enumerate(REGIONS)])
        self.write("nation", "n", [(key, name, region, "a nation") for key, (name, region) in enumerate(NATIONS)])
        self.write("supplier", "s", [self._supplier(key) for key in range(1, SUPPLIERS + 1)])
        self.write("customer", "c", [self._customer(key) for key in range(1, CUSTOMERS + 1)])
        self.write("part", "p", [self._part(key) for key in range(1, PARTS + 1)])
        self.write("partsupp", "ps", self._offers())
        self.sell("1", 1, 700)
        self.sell("2", 701, 300)

    def change(self) -> None:
        """More orders, one file of them rewritten, and some more customers."""
        self.sell("3", 1001, 150)
        self.sell("2", 701, 260)
        self.append("customer", "c", [self._customer(key) for key in range(CUSTOMERS + 1, CUSTOMERS + 11)])

    def sell(self, file: str, first: int, count: int) -> None:
        orders, lines = [], []
        for key in range(first, first + count):
            order, its_lines = self._order(key)
            orders.append(order)
            lines.extend(its_lines)
        self.write("orders", file, orders)
        self.write("lineitem", file, lines)

    def write(self, table: str, file: str, rows: Iterable[Row]) -> None:
        path = self._folder / "data" / table / f"{file}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([COLUMNS[table].split(), *rows])

    def append(self, table: str, file: str, rows: Iterable[Row]) -> None:
        with (self._folder / "data" / table / f"{file}.csv").open("a", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(rows)

    def _money(self, low: int, high: int) -> str:
        cents = self._pick.randrange(low * 100, high * 100)
        return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"

    def _nation(self) -> int:
        return self._pick.choice([*range(len(NATIONS)), *ASKED_NATIONS, *ASKED_NATIONS, *ASKED_NATIONS])

    def _phone(self, nation: int) -> str:
        return f"{nation + 10}-{self._pick.randrange(100, 999)}-{self._pick.randrange(1000, 9999)}"

    def _supplier(self, key: int) -> Row:
        nation = self._nation()
        comment = self._pick.choice(["reliable, mostly", "many Customer letters, some Complaints", "quick"])
        address = f"{key} Dock Road"
        return key, f"Supplier#{key:09}", address, nation, self._phone(nation), self._money(-900, 9999), comment

    def _customer(self, key: int) -> Row:
        nation = self._nation()
        segment = self._pick.choice(["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"])
        money = self._money(-999, 9999)
        return (
            key,
            f"Customer#{key:09}",
            f"{key} Main Street",
            nation,
            self._phone(nation),
            money,
            segment,
            'a "good" one',
        )

    def _part(self, key: int) -> Row:
        pick = self._pick
        name = " ".join(pick.sample(["forest", "green", "ivory", "lace", "navy", "plum", "snow"], 3))
        brand = pick.choice(["Brand#12", "Brand#23", "Brand#34", "Brand#45", "Brand#51"])
        kind = pick.choice(["ECONOMY ANODIZED", "PROMO BURNISHED", "MEDIUM POLISHED", "SMALL PLATED"])
        size = pick.choice([1, 2, 3, 4, 5, 9, 14, 15, 15, 15, 19, 23, 36, 45, 49])
        container = pick.choice(
            ["SM CASE", "SM BOX", "MED BOX", "MED BOX", "MED BAG", "LG CASE", "LG PKG", "JUMBO JAR"]
        )
        metal = pick.choice(["STEEL", "BRASS", "STEEL", "BRASS", "TIN"])
        return (
            key,
            name,
            f"Manufacturer#{key % 5 + 1}",
            brand,
            f"{kind} {metal}",
            size,
            container,
            self._money(900, 2000),
            "a part",
        )

    def _offers(self) -> Iterator[Row]:
        for part in range(1, PARTS + 1):
            for supplier in suppliers_of(part):
                yield part, supplier, self._pick.randrange(1, 9999), self._money(1, 1000), "in stock"

    def _order(self, key: int) -> tuple[Row, list[Row]]:
        pick = self._pick
        # A third of the customers never buys.
        customer = pick.choice([one for one in range(1, CUSTOMERS + 1) if one % 3])
        ordered = date(1992, 1, 1) + timedelta(days=pick.randrange(2405))
        largest = 50 if key % 50 else 0
        lines = [
            self._line(key, number, ordered, largest) for number in range(1, pick.randrange(1, 8) if largest else 8)
        ]
        states = {line[9] for line in lines}
        status = states.pop() if len(states) == 1 else "P"
        comment = pick.choice(["special packing requests", "quick and special, no requests", "nothing", "the usual"])
        priority = pick.choice(["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"])
        order = (key, customer, status, self._money(1000, 400000), ordered, priority, f"Clerk#{key % 7}", 0, comment)
        return order, lines

    def _line(self, order: int, number: int, ordered: date, largest: int) -> Row:
        pick = self._pick
        part = pick.randrange(1, PARTS + 1)
        quantity = pick.choice([1, 2, 3, *range(1, 51)]) if largest else 45
        shipped = ordered + timedelta(days=pick.randrange(1, 121))
        committed = ordered + timedelta(days=pick.randrange(30, 151))
        received = shipped + timedelta(days=pick.randrange(1, 31))
        return (
            *(order, part, pick.choice(suppliers_of(part)), number, quantity, self._money(900, 90000)),
            *(f"0.{pick.randrange(11):02}", f"0.{pick.randrange(9):02}"),
            pick.choice("RA") if received <= TODAY else "N",
            "O" if shipped > TODAY else "F",
            *(shipped, committed, received),
            pick.choice(["DELIVER IN PERSON", "DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]),
            pick.choice(["AIR", "AIR REG", "MAIL", "SHIP", "RAIL", "TRUCK", "FOB"]),
            pick.choice(["", "fragile", "this side up"]),
        )


def suppliers_of(part: int) -> list[int]:
    """The four suppliers that offer a part."""
    return [(part + place * (SUPPLIERS // 4) + place) % SUPPLIERS + 1 for place in range(4)]
