"""Foundations of every room: errors, names, files, caches, shapes. Imports nothing of vtaops."""
