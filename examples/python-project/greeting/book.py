"""A guest book in an SQLite file."""

import sqlite3
from pathlib import Path


def greet(name: str) -> str:
    """What is said to somebody."""
    if not name.strip():
        raise ValueError("a name is needed")
    return f"Hello, {name.strip()}!"


class GuestBook:
    """Who was greeted, and how often."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("CREATE TABLE IF NOT EXISTS guest (name TEXT PRIMARY KEY, visits INTEGER NOT NULL)")

    def sign(self, name: str) -> int:
        """Greets a guest and gives the number of visits so far."""
        greet(name)
        with self._database:
            self._database.execute(
                "INSERT INTO guest VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET visits = visits + 1", (name,)
            )
        row = self._database.execute("SELECT visits FROM guest WHERE name = ?", (name,)).fetchone()
        return row[0]

    def close(self) -> None:
        self._database.close()
