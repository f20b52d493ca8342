"""``python -m vtaops``: the `vtaops` command, which Ctrl-C ends without a traceback at any time."""

import os
import signal


def main() -> None:
    """Import the command line, which may be interrupted, and run it."""

    def leave(*_: object) -> None:
        os.write(2, b"interrupted\n")
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    from vtaops import cli

    signal.signal(signal.SIGINT, before)
    cli.main()


if __name__ == "__main__":
    main()
