"""A matplotlib backend: sends the figures that a program shows to the caller of the run, as PNG.

Drawing is Agg's. `show` sends every open figure once and closes it; what is still open when the interpreter ends is sent
then, also after an exception. Only the process that imported this sends: what it forks has copies of its figures.
guest/PROTOCOL.md describes the format ("Pictures").
"""

import atexit
import fcntl
import io
import os
import stat
import struct
import sys

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

_RECORD = struct.Struct("<IBBH")
_IMAGE = 1
_PNG = 1


def _pipe():
    """Which pipe images go into: its descriptor and what it is, or None. A program may have put something else there."""
    try:
        number = int(os.environ.get("GLOVEBOX_IMAGES", ""))
        there = os.fstat(number)
        writable = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    except (ValueError, OSError):
        return None
    return (number, there.st_dev, there.st_ino) if stat.S_ISFIFO(there.st_mode) and writable else None


class _Channel:
    def __init__(self):
        self.pipe = _pipe()
        self.owner = os.getpid()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        # A run that was forked from an interpreter that had imported this leads a session; what a program forks does not.
        if os.getsid(0) == os.getpid():
            self.pipe = _pipe()
            self.owner = os.getpid()

    def send(self, figure):
        if os.getpid() != self.owner:
            return
        if not self.pipe or self.pipe != _pipe():
            return
        image = io.BytesIO()
        figure.canvas.print_figure(image, format="png")
        bytes_left = memoryview(_RECORD.pack(image.tell(), _IMAGE, _PNG, 0) + image.getvalue())
        try:
            while bytes_left:
                bytes_left = bytes_left[os.write(self.pipe[0], bytes_left) :]
        except OSError:
            self.pipe = None


_channel = _Channel()


class FigureManager(FigureManagerBase):
    def show(self):
        _channel.send(self.canvas.figure)
        Gcf.destroy(self)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def show(*args, **kwargs):
    for manager in Gcf.get_all_fig_managers():
        manager.show()


@atexit.register
def _show_what_is_open():
    for manager in Gcf.get_all_fig_managers():
        try:
            manager.show()
        except Exception:
            sys.excepthook(*sys.exc_info())
