"""Measurements: ``python -m benchmarks NAME`` runs one, ``--list`` names all.

A benchmark is a file here: its docstring explains it, its `main` takes the options and measures.
Options that several share, files of results, tables and medians are in `benchmarks.options`; what
was measured for the documents lies in `results`. Generators of cases and their judges are in the
package `trials` beside this one, which tests use too.
"""
