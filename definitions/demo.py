"""`make demo`: the project in this folder, from nothing, on a copy of its data, by the commands that you would type."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parent / ".velo" / "demo"
COMMAND = Path(sys.executable).with_name("velo-dagster")
TABLES = ("users", "user_spending", "orders_by_city", "expensive_orders", "open_orders")

NEW_LINES = """6,3,keyboard,59.90,2025-06-01T19:30:00
7,2,cable,3.75,2025-06-01T20:11:30
"""
NEW_FILE = """order_id,user_id,product,amount,ordered_at
8,1,monitor,249.00,2025-06-02T07:45:00
"""
MOVED = '{"user_id": 2, "name": "Bob", "city": "Lisbon", "tier": "GOLD"}\n'
DELIVERIES = '[{"order_id": 1, "delivered_at": "2025-06-02T10:00:00"}, {"order_id": 4, "delivered_at": "2025-06-02"}]\n'


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def velo(*arguments: str, expected: int = 0) -> None:
    """Run the CLI, showing the command; the demo stops if it ends otherwise than told."""
    print(f"$ velo-dagster {' '.join(part if ' ' not in part else repr(part) for part in arguments)}", flush=True)
    done = subprocess.run([COMMAND, *arguments], cwd=FOLDER, check=False)
    if done.returncode != expected:
        sys.exit(f"The demo ended here: exit code {done.returncode} instead of {expected}.")


def show() -> None:
    for table in TABLES:
        if (FOLDER / ".velo" / "warehouse" / table).exists():
            velo("query", f"SELECT * FROM {table} ORDER BY 1, 2")


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(HERE, FOLDER, ignore=shutil.ignore_patterns("demo.py", "__pycache__", "__init__.py"))
    data = FOLDER / "data"

    say("1. What is here: seven tables in four files; none is loaded yet.")
    velo("plan", ".")

    say("2. Load them. The deliveries are not there yet: the two tables that need them wait, the others load.")
    velo("load", ".", expected=1)
    show()

    say("3. Rows arrive: two lines in today's file, a file for tomorrow, a user who moves, and the missing file.")
    with (data / "orders-2025-06-01.csv").open("a") as file:
        file.write(NEW_LINES)
    (data / "orders-2025-06-02.csv").write_text(NEW_FILE)
    with (data / "users.jsonl").open("a") as file:
        file.write(MOVED)
    (data / "deliveries.json").write_text(DELIVERIES)

    say("4. Load again: only the new lines are read; what depends on them follows.")
    velo("load", ".")
    show()

    say("5. And again: nothing is new, nothing is done, and Spark is not even started.")
    velo("load", ".")
    velo("status", ".")


if __name__ == "__main__":
    main()
