"""A board and its client in processes of their own, and where possible on hosts of their own.

Two network namespaces, joined by a virtual cable, stand for two hosts with different addresses.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from helpers.processes import spawned

from trials.boards import bit_file

TUTORIAL = Path(__file__).parents[2] / "examples" / "board_tutorial.py"
BOARD, CLIENT = "10.203.7.1", "10.203.7.2"
SECRET = "a secret of more than sixteen bytes"
COUNTERS = {"gemm_counter": 451584, "alu_counter": 9408, "inp_load_nbytes": 114688}
"""Some that the tutorial published."""

INFO = """
import json
import sys
from vtaops.runtime.remote import RemoteDevice

print(json.dumps(RemoteDevice(sys.argv[1]).info()))
"""

CALLS = """
import sys
import numpy as np
from vtaops import Gemm
from vtaops.errors import DeviceError
from vtaops.runtime.remote import RemoteDevice
from vtaops.session import Session

def say(text):
    print(text, flush=True)

device = RemoteDevice(sys.argv[1], "pynq")
session = Session(device)
for line in sys.stdin:
    device._timeout = session.residents._timeout = float(line)
    try:
        x = np.full((2, 16), 3, np.int8)
        right = (session.gemm(x, np.ones((16, 16), np.int8), shift=0) == 48).all()
        say("right" if right else "WRONG")
    except DeviceError as error:
        say(f"{type(error).__name__}: {error}")
"""


class Host:
    """Where commands run: this machine, or a namespace of it."""

    def __init__(self, *prefix):
        self.prefix = [*map(str, prefix)]

    def start(self, *command, environment=None, **options):
        environment = clean_environment() | (environment or {})
        return spawned([*self.prefix, *map(str, command)], env=environment, **options)

    def run(self, *command, environment=None):
        return subprocess.run(
            [*self.prefix, *map(str, command)], capture_output=True, text=True, check=False,
            env=clean_environment() | (environment or {}),
        )  # fmt: skip


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("VTAOPS_BOARD_SECRET")}


@contextmanager
def serving(host, *arguments, environment=None):
    """Serve on `host`; yields the address that the server says."""
    with host.start(sys.executable, *arguments, environment=environment) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture
def bitstream(tmp_path):
    (tmp_path / "vta.bit").write_bytes(bit_file().to_bytes())
    return tmp_path / "vta.bit"


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    return {"VTAOPS_BOARD_SECRET_FILE": str(tmp_path / "secret")}


def check_tutorial(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same result as NumPy" in done.stdout
    shown = dict(line.split(":") for line in done.stdout.splitlines() if line.count(":") == 1)
    shown = {name.strip(): value.strip() for name, value in shown.items()}
    assert {name: int(shown[name]) for name in COUNTERS} == COUNTERS


# ------------------------------------------------------------------------- this machine


def test_the_tutorial_over_our_protocol(bitstream):
    here = Host()
    with serving(here, "-m", "vtaops.board", "virtual", "pynq", "--port", 0) as address:
        check_tutorial(here.run(sys.executable, TUTORIAL, address, "--bitstream", bitstream))
        check_tutorial(here.run(sys.executable, TUTORIAL, address))  # it is programmed now


def test_a_virtual_board_may_start_programmed():
    here = Host()
    with serving(
        here, "-m", "vtaops.board", "virtual", "pynq", "--port", 0, "--programmed"
    ) as address:
        check_tutorial(here.run(sys.executable, TUTORIAL, address))


# ---------------------------------------------------------------------------- two hosts


@pytest.fixture(scope="module")
def hosts():
    """The host of a board and that of a client, with a cable between them."""
    own_users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    as_root = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]

    def namespace(stack, *prefix):
        """Start a process that holds a new namespace; return what runs a command there."""
        process = stack.enter_context(
            subprocess.Popen(
                [*prefix, "unshare", *(() if prefix else own_users), "--net",
                 "sh", "-c", "echo made; exec cat"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        stack.callback(process.stdin.close)  # the end of `cat`, and of the namespace
        if process.stdout.readline() != "made\n":
            pytest.skip(f"no network namespaces here: {process.stderr.read().strip()}")
        return process.pid, ["nsenter", "--target", str(process.pid), *as_root, "--net"]

    with ExitStack() as stack:
        try:
            _, on_board = namespace(stack)
            client_process, on_client = namespace(stack, *on_board)
        except FileNotFoundError as error:
            pytest.skip(f"no network namespaces here: {error}")
        cable = ["link", "add", "board", "type", "veth", "peer", "name", "client"]
        for prefix, command in (
            (on_board, [*cable, "netns", client_process]),
            (on_board, ["address", "add", f"{BOARD}/24", "dev", "board"]),
            (on_client, ["address", "add", f"{CLIENT}/24", "dev", "client"]),
            (on_board, ["link", "set", "board", "up"]),
            (on_client, ["link", "set", "client", "up"]),
            (on_board, ["link", "set", "lo", "up"]),
        ):
            try:
                done = Host(*prefix, "ip").run(*command)
            except FileNotFoundError as error:
                pytest.skip(f"no network namespaces here: {error}")
            if done.returncode:
                pytest.skip(f"no network namespaces here: ip {command}: {done.stderr.strip()}")
        yield Host(*on_board), Host(*on_client)


BOARD_COMMAND = ("-m", "vtaops.board", "virtual", "pynq", "--host", BOARD, "--port", 0)


def test_the_tutorial_from_another_host(hosts, bitstream, secret):
    board, client = hosts
    with serving(board, *BOARD_COMMAND, environment=secret) as address:
        assert address.startswith(f"pynq://{BOARD}:")
        command = (sys.executable, TUTORIAL, address, "--bitstream", bitstream)
        check_tutorial(client.run(*command, environment=secret))


def test_other_hosts_need_the_secret(hosts, tmp_path, secret):
    board, client = hosts
    refused = board.run(sys.executable, *BOARD_COMMAND)
    assert refused.returncode == 1
    assert f"listening on {BOARD} needs a shared secret" in refused.stderr
    (tmp_path / "other").write_text(SECRET[::-1])
    other = {"VTAOPS_BOARD_SECRET_FILE": str(tmp_path / "other")}
    with serving(board, *BOARD_COMMAND, "--programmed", environment=secret) as address:
        info = (sys.executable, "-c", INFO, address)
        assert "the board asks for its shared secret" in client.run(*info).stderr
        assert "the shared secret is wrong" in client.run(*info, environment=other).stderr
        facts = json.loads(client.run(*info, environment=secret).stdout)
        assert facts["sessions"] == 1
        assert facts["programmed"] is True


def test_a_pulled_cable_is_a_timeout_and_the_next_call_works(hosts, secret):
    board, client = hosts
    with serving(board, *BOARD_COMMAND, "--programmed", environment=secret) as address:
        command = (sys.executable, "-c", CALLS, address)
        with client.start(*command, environment=secret, stdin=subprocess.PIPE) as process:

            def call(timeout):
                process.stdin.write(f"{timeout}\n")
                process.stdin.flush()
                return process.stdout.readline().strip()

            assert call(30) == "right"
            assert client.run("ip", "link", "set", "client", "down").returncode == 0
            assert call(0.5).startswith(f"DeviceTimeout: {address}, write")
            assert "cannot reach a board" in call(0.5)
            assert client.run("ip", "link", "set", "client", "up").returncode == 0
            assert call(30) == "right"  # the kernel asks again until the other end answers
            process.stdin.close()
            assert process.wait(30) == 0
