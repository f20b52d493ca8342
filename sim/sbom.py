"""Writes what a wheel carries, with versions and licences, as CycloneDX: sbom.py VERSION FILE.

CMake calls it with the Python of the build, whose nanobind is compiled into the extension modules.
All else in a wheel is our own. What pip installs beside it is listed by its requirement, since who
installs the wheel chooses the versions, and has licences of its own.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any


def component(kind: str, name: str, number: str, licence: str, about: str) -> dict[str, Any]:
    """Return a part of the wheel, which PyPI knows by its name."""
    return {
        "type": kind,
        "bom-ref": f"pkg:pypi/{name}@{number}",
        "purl": f"pkg:pypi/{name}@{number}",
        "name": name,
        "version": number,
        "description": about,
        "licenses": [{"license": {"id": licence}}],
    }


def installed_beside() -> list[dict[str, Any]]:
    """Return the packages that the wheel depends on."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    found = {}
    for requirement in project["dependencies"]:
        name = re.split(r"[^\w.-]", requirement)[0]
        known = found.setdefault(name, [])
        known.append({"name": "vtaops:requirement", "value": requirement})
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "purl": f"pkg:pypi/{name}",
            "name": name,
            "scope": "required",
            "description": "not in the wheel: pip installs it beside it",
            "properties": requirements,
        }
        for name, requirements in sorted(found.items())
    ]


def document(own: str) -> dict[str, Any]:
    """Return the document for a version of vtaops; equal builds give equal documents."""
    whole = component("library", "vtaops", own, "Apache-2.0", "Python, C++, SystemVerilog, data")
    parts = [
        component(
            "library", "nanobind", version("nanobind"), "BSD-3-Clause",
            "headers compiled into the extension modules of vtaops",
        ),
        *installed_beside(),
    ]  # fmt: skip
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": whole, "lifecycles": [{"phase": "build"}]},
        "components": parts,
        "dependencies": [
            {"ref": whole["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}
        ],
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(document(sys.argv[1]), indent=1) + "\n")
