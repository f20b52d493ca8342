"""Rewrites of trees, operations and fragments: what is left out, joined, moved or forwarded."""
