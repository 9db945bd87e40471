"""A small retailer with three channels: a star schema in the manner of TPC-DS, from a fixed seed.

Facts refer to dimensions that exist; one key in twenty-five is NULL, as in the original. The same customers buy the
same items in several channels, so that what compares channels has an answer.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

Row = Sequence[Any]

COLUMNS = {
    "date_dim": "d_date_sk d_date d_year d_moy d_dom d_qoy d_week_seq d_month_seq d_day_name",
    "item": "i_item_sk i_item_id i_item_desc i_brand_id i_brand i_class i_category i_manufact_id i_manager_id "
    "i_current_price",
    "store": "s_store_sk s_store_id s_store_name s_state s_county",
    "customer": "c_customer_sk c_customer_id c_first_name c_last_name c_current_addr_sk c_current_cdemo_sk "
    "c_birth_year c_preferred_cust_flag",
    "customer_address": "ca_address_sk ca_city ca_county ca_state ca_zip",
    "customer_demographics": "cd_demo_sk cd_gender cd_marital_status cd_education_status cd_dep_count",
    "promotion": "p_promo_sk p_channel_email p_channel_event",
    "store_sales": "ss_sold_date_sk ss_item_sk ss_customer_sk ss_cdemo_sk ss_addr_sk ss_store_sk ss_promo_sk "
    "ss_ticket_number ss_quantity ss_list_price ss_sales_price ss_coupon_amt ss_ext_sales_price ss_net_profit",
    "store_returns": "sr_returned_date_sk sr_item_sk sr_customer_sk sr_store_sk sr_ticket_number "
    "sr_return_quantity sr_return_amt sr_net_loss",
    "catalog_sales": "cs_sold_date_sk cs_item_sk cs_bill_customer_sk cs_bill_cdemo_sk cs_promo_sk cs_quantity "
    "cs_list_price cs_sales_price cs_ext_sales_price cs_net_profit",
    "web_sales": "ws_sold_date_sk ws_item_sk ws_bill_customer_sk ws_quantity ws_list_price ws_sales_price "
    "ws_ext_sales_price ws_net_profit",
}
DAYS, ITEMS, STORES, CUSTOMERS, ADDRESSES, DEMOGRAPHICS = 731, 40, 6, 80, 60, 24
START = date(1999, 1, 1)
CATEGORIES = {
    "Books": ["fiction", "travel"],
    "Home": ["rugs", "lamps"],
    "Music": ["rock", "jazz"],
    "Sports": ["golf", "tennis"],
}


class Retail:
    """Makes rows and writes them; sales come in files of their own, so that some can change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pick = random.Random(99)

    def bulk(self) -> None:
        self.write("date_dim", "d", map(_day, range(1, DAYS + 1)))
        self.write("item", "i", [self._item(key) for key in range(1, ITEMS + 1)])
        self.write(
            "store", "s", [(key, f"S{key:04}", ["ought", "able", "ese"][key % 3], *PLACES[key % 4]) for key in stores()]
        )
        self.write("customer", "c", [self._customer(key) for key in range(1, CUSTOMERS + 1)])
        self.write("customer_address", "a", [self._address(key) for key in range(1, ADDRESSES + 1)])
        self.write("customer_demographics", "d", [self._demographics(key) for key in range(1, DEMOGRAPHICS + 1)])
        self.write("promotion", "p", [(key, "NY"[key % 2], "NY"[key // 2 % 2]) for key in range(1, 9)])
        self.sell("a", 1, 260)
        self.sell("b", 261, 120)

    def change(self) -> None:
        """More sales, one file of them rewritten, and a few more customers."""
        self.sell("c", 381, 60)
        self.sell("b", 261, 100)
        self.append("customer", "c", [self._customer(key) for key in range(CUSTOMERS + 1, CUSTOMERS + 6)])

    def sell(self, file: str, first: int, tickets: int) -> None:
        store: list[Row] = []
        returned: list[Row] = []
        catalog: list[Row] = []
        web: list[Row] = []
        for ticket in range(first, first + tickets):
            day, customer = self._pick.randrange(1, DAYS - 40), self._key(CUSTOMERS)
            for item in self._pick.sample(range(1, ITEMS + 1), self._pick.randrange(1, 12)):
                sale = self._sale(day, item, customer)
                store.append(self._in_store(sale, ticket))
                if self._pick.random() < 0.25:
                    returned.append(self._returned(store[-1]))
                if self._pick.random() < 0.45:
                    catalog.append(self._in_catalog(day, item, customer))
                if self._pick.random() < 0.35:
                    web.append(
                        self._sale(
                            day + self._pick.choice([0, 0, 3, 35]),
                            self._pick.choice([item, item % ITEMS + 1]),
                            customer,
                        )
                    )
        self.write("store_sales", file, store)
        self.write("store_returns", file, returned)
        self.write("catalog_sales", file, catalog)
        self.write("web_sales", file, web)

    def write(self, table: str, file: str, rows: Iterable[Row]) -> None:
        path = self._folder / "data" / table / f"{file}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([COLUMNS[table].split(), *rows])

    def append(self, table: str, file: str, rows: Iterable[Row]) -> None:
        with (self._folder / "data" / table / f"{file}.csv").open("a", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(rows)

    def _key(self, count: int) -> int | None:
        return None if self._pick.random() < 0.04 else self._pick.randrange(1, count + 1)

    def _item(self, key: int) -> Row:
        category = list(CATEGORIES)[key % 4]
        kind = CATEGORIES[category][key // 4 % 2]
        price = _money(self._pick.randrange(100, 9900))
        brand = key % 7 + 1
        return (
            key,
            f"I{key // 2:05}",
            f"item number {key}",
            brand,
            f"brand {brand}",
            kind,
            category,
            key % 5 + 1,
            key % 6 + 1,
            price,
        )

    def _customer(self, key: int) -> Row:
        pick = self._pick
        first, last = pick.choice(["Ann", "Ben", "Cy", "Dee", ""]), pick.choice(["Fox", "Gray", "Hill", "Ives"])
        return (
            key,
            f"C{key:05}",
            first,
            last,
            self._key(ADDRESSES),
            self._key(DEMOGRAPHICS),
            1940 + key % 50,
            pick.choice("YN"),
        )

    def _address(self, key: int) -> Row:
        state, county = PLACES[self._pick.randrange(4)]
        return (
            key,
            self._pick.choice(["Midway", "Fairview", "Oak Hill"]),
            county,
            state,
            f"{self._pick.randrange(10000, 99999)}",
        )

    def _demographics(self, key: int) -> Row:
        education = ["College", "Primary", "Unknown", "4 yr Degree"][key % 4]
        return key, "MF"[key % 2], "MSDWU"[key % 5], education, key % 4

    def _sale(self, day: int, item: int, customer: int | None) -> Row:
        """A sale on the web, from which those in stores are made, too."""
        quantity = self._pick.randrange(1, 100)
        listed = self._pick.randrange(200, 20000)
        price = listed * self._pick.randrange(30, 101) // 100
        profit = price * quantity - listed * quantity * 6 // 10
        sold = None if self._pick.random() < 0.04 else day
        return sold, item, customer, quantity, _money(listed), _money(price), _money(price * quantity), _money(profit)

    def _in_store(self, sale: Row, ticket: int) -> Row:
        sold, item, customer, quantity, listed, price, total, profit = sale
        keys = self._key(DEMOGRAPHICS), self._key(ADDRESSES), self._key(STORES), self._key(8)
        coupon = _money(self._pick.choice([0, 0, 0, 500]))
        return sold, item, customer, *keys, ticket, quantity, listed, price, coupon, total, profit

    def _returned(self, sale: Row) -> Row:
        sold, item, customer, _, _, store, _, ticket, quantity, *_ = sale
        back = None if sold is None else sold + self._pick.randrange(1, 40)
        return (
            back,
            item,
            customer,
            store,
            ticket,
            quantity,
            _money(self._pick.randrange(100, 90000)),
            _money(self._pick.randrange(900)),
        )

    def _in_catalog(self, day: int, item: int, customer: int | None) -> Row:
        sold, item, customer, quantity, listed, price, total, profit = self._sale(day, item, customer)
        return sold, item, customer, self._key(DEMOGRAPHICS), self._key(8), quantity, listed, price, total, profit


PLACES = (("TN", "Ziebach"), ("TN", "Walker"), ("OH", "Bronx"), ("GA", "Daviess"))


def stores() -> range:
    return range(1, STORES + 1)


def _day(key: int) -> Row:
    day = START + timedelta(days=key - 1)
    quarter = (day.month - 1) // 3 + 1
    months = (day.year - 1900) * 12 + day.month - 1
    return key, day, day.year, day.month, day.day, quarter, (key + 3) // 7 + 1, months, day.strftime("%A")


def _money(cents: int) -> str:
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"
