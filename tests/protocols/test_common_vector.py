"""A vector that several processes on one machine read and write: it is found by its secret, locked, and freed."""

import os
import signal
from pathlib import Path

import pytest
import torch

from samovar.protocols.shared_memory.common_vector import MachineMemory, Where

MEMORY, INITIAL = MachineMemory(), torch.arange(5.0)


def mapped() -> int:
    """How many segments this process has mapped."""
    return Path("/proc/self/maps").read_text("utf-8").count("memfd:samovar")


def test_all_sides_read_and_write_one_vector_and_it_is_freed_with_the_last() -> None:
    before = mapped()
    made = MEMORY.create(INITIAL)
    found = MEMORY.attach(made.where, INITIAL)
    further = MEMORY.attach(found.where, INITIAL)
    made.close()
    further.vector[2] = 70.0
    assert made.vector.tolist() == found.vector.tolist() == [0.0, 1.0, 70.0, 3.0, 4.0]
    assert INITIAL[2] == 2.0
    assert mapped() == before + 3
    found.close()
    further.close()
    del made, found, further
    assert mapped() == before


@pytest.mark.parametrize("what", ["secret", "size", "process", "descriptor"])
def test_a_place_that_holds_another_memory_is_refused(what: str) -> None:
    made = MEMORY.create(INITIAL)
    pid, fd, secret = made.where
    wrong = {
        "secret": Where(pid, fd, bytes(32)),
        "size": made.where,
        "process": Where(1 << 30, fd, secret),
        "descriptor": Where(pid, 0, secret),
    }
    with pytest.raises(OSError, match=r"secret|size|No such|no shared memory"):
        MEMORY.attach(wrong[what], torch.zeros(6) if what == "size" else INITIAL)
    made.close()
    with pytest.raises(OSError, match="No such"):
        MEMORY.attach(made.where, INITIAL)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_process_within_the_lock_keeps_it_while_it_is_stopped_and_leaves_it_when_it_is_killed(stopped: bool) -> None:
    made = MEMORY.create(INITIAL)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own = MEMORY.attach(made.where, INITIAL)
            with own:
                own.vector[0] = 9.0
                os.write(writes, b"!")
                signal.pause()
        finally:
            os._exit(1)
    assert os.read(reads, 1) == b"!"
    other = MEMORY.attach(made.where, INITIAL)
    assert is_locked(other.where.fd)
    if stopped:
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        assert is_locked(other.where.fd)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with other:
        assert is_locked(made.where.fd)
        assert made.vector[0] == 9.0
    assert not is_locked(made.where.fd)
    for end in (reads, writes):
        os.close(end)
    made.close()
    other.close()


def is_locked(fd: int) -> bool:
    """Whether somebody else is within the lock."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
