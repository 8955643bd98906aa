"""Greets people, and remembers whom."""

from greeting.book import GuestBook, greet

__all__ = ["GuestBook", "greet"]
