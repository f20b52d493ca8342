"""The stubs of `vtaops.cpu` and `vtaops.cuda` name every operator, with its signature."""

from pathlib import Path

import pytest

from vtaops import cpu, cuda

BACKENDS = {cpu: cpu._cpu, cuda: cuda._cuda}
HEAD = '"""What type checkers know of `__init__.py`; tests/kernels/test_stubs.py writes it."""\n'


def stub_of(module):
    """Return the text of a package's stub: its names, and the calls of its backend."""
    calls = type(BACKENDS[module]).__base__
    operators = sorted(BACKENDS[module].operators())
    others = sorted({*module.__all__} - {*operators, "CACHE"})
    homes = {name: getattr(module, name).__module__ for name in others}
    homes["CACHE"] = f"{module.__name__}.kernel"
    imports = [f"from {home} import {name} as {name}" for name, home in homes.items()]
    lines = [
        *sorted([*imports, f"from {calls.__module__} import {calls.__name__}"]),
        f"\n_calls: {calls.__name__}\n",
        *(f"{name} = _calls.{name}" for name in operators),
    ]
    return "\n".join([HEAD, *lines]) + "\n"


def path_of(module):
    return Path(module.__file__).with_suffix(".pyi")


@pytest.mark.parametrize("module", BACKENDS, ids=lambda module: module.__name__)
def test_stubs_name_every_operator(module):
    assert path_of(module).read_text() == stub_of(module)


if __name__ == "__main__":
    for module in BACKENDS:
        path_of(module).write_text(stub_of(module))
