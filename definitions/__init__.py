"""A small real project: `make demo` runs it."""
