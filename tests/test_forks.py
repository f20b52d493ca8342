"""Locks in a process that forks while another thread holds them."""

import os
import signal
import threading

import pytest

from vtaops.base.forks import ForkLock
from vtaops.errors import DeviceError

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def in_a_child(act):
    """Return whether something returns True in a forked child."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    signal.alarm(60)
    try:
        good = act()
    except BaseException:
        good = False
    os._exit(0 if good else 1)


@pytest.fixture
def held():
    """Return locks that another thread holds: one of each kind."""
    locks, taken, done = (ForkLock(), ForkLock("the board")), threading.Event(), threading.Event()

    def hold():
        with locks[0], locks[1]:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    yield locks
    done.set()
    thread.join()


def test_a_lock_of_another_thread_is_free_in_a_child(held):
    def use():
        with held[0], held[0]:
            return True

    assert in_a_child(use)


def test_what_cannot_be_interrupted_is_refused_in_a_child(held):
    def use():
        with pytest.raises(DeviceError, match="the board was in use by another thread"), held[1]:
            pass
        return True

    assert in_a_child(use)


@pytest.mark.parametrize("what", ["", "the board"])
def test_what_the_forking_thread_holds_it_holds_in_the_child(what):
    lock = ForkLock(what)
    with lock:

        def leave():
            with lock:
                return True

        assert in_a_child(leave)
    with lock:
        assert in_a_child(lambda: lock._lock._is_owned())
