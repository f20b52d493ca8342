"""``python -m vtaops.cli``: the `vtaops` command."""

from vtaops.cli import main

main()
