"""Work for the processes of the tests: functions of a module, since another process imports them."""

import os
import signal
import time

from glocal.errors import InputError
from glocal.progress import Progress
from glocal.studio.worker import StoppedWork


def doubled(link, value):
    link.message(f"doubling {value}")
    return 2 * value


def refused(link):
    raise InputError("read image (a.png): there is no such file. Check the name.")


def _gray():
    import torch  # here, since most of this work does without

    return torch.full((8, 8, 3), 50.0)


def paint(link, seconds=30.0):
    """Shows a picture until it is asked to stop."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if link.progress(Progress(0.25, step="paint", image=_gray(), levels=3)):
            raise StoppedWork("the best so far")
        time.sleep(0.01)
    return "finished"


def deaf(link):
    """Never looks whether it is to stop."""
    link.progress(Progress(0.1))
    time.sleep(60)


def stubborn(link):
    """Shows a picture, then never looks whether it is to stop."""
    link.progress(Progress(0.1, image=_gray()))
    time.sleep(60)


def die(link, number):
    os.kill(os.getpid(), number)
    time.sleep(60)


def leave(link):
    os._exit(3)


def pid(link):
    return os.getpid()


def nap(link, seconds, value):
    time.sleep(seconds)
    return value


KILLED = signal.SIGKILL
