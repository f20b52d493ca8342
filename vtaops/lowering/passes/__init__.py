"""Optimization passes on trees, operations and fragments."""
