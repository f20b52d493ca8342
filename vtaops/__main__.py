"""``python -m vtaops``: the `vtaops` command."""

from vtaops.cli import main

main()
