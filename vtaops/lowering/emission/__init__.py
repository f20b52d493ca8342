"""Emit the operations of one operator, a Fragment, from a tree of loops."""
