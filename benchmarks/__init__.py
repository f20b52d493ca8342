"""Measurements: ``python -m benchmarks NAME`` runs one, ``--list`` names all.

A benchmark is a file here: its docstring explains it, its `main` takes the options and measures.
What several share is in `benchmarks.options`: options, rows that go on where they stopped, tables,
times; what was measured for the documents lies in `results`. Cases and their judges are in the
package `trials` beside this one, which tests use too; tests import no benchmark.
"""
