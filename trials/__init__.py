"""Random, hostile and mutated cases with their judges: tests run some, campaigns run thousands.

Nothing here imports tests or benchmarks.
"""
