"""Generators, references and devices that several tests share."""
