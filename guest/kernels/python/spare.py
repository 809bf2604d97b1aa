"""Makes the fork of a spare interpreter what an interpreter is that was started with its arguments and variables."""

import os
import posix
import site
import sys
import time

# Variables that the C library and the interpreter read when they start.
_EARLY = ("GCONV_PATH", "GLIBC_", "LANG", "LC_", "LD_", "LOCPATH", "MALLOC_", "NLSPATH", "PYTHON")
_PACKAGES = "/opt/packages/python/site-packages"  # of the profile


def fits(arguments, variables):
    """Takes over arguments and variables, each with its NUL. Returns whether nothing distinguishes the process from a started one."""
    words = [os.fsdecode(word) for word in arguments.split(b"\0")[:-1]]
    environ = dict(pair.split(b"=", 1) for pair in variables.split(b"\0")[:-1] if b"=" in pair)
    if _early(environ) != _early(os.environb) or _python(environ, words[0]) != sys.executable:
        return False
    _take_variables(environ)
    sys.argv[:] = words[1:]
    sys.orig_argv[:] = words
    # The directory of packages of the user, which depends on HOME.
    site.USER_BASE = site.USER_SITE = None
    return not os.path.isdir(site.getusersitepackages()) and not os.path.isdir(_PACKAGES)


def _early(environ):
    names = tuple(os.fsencode(name) for name in _EARLY)
    return {name: value for name, value in environ.items() if name.startswith(names)}


def _python(environ, name):
    """Returns the path of the program that a started interpreter would have."""
    for directory in os.fsdecode(environ.get(b"PATH", b"")).split(":"):
        path = "%s/%s" % (directory, name)
        if directory.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _take_variables(environ):
    os.environb.clear()
    posix.environ.clear()
    for name, value in environ.items():
        os.environb[name] = value
        posix.environ[name] = value
    time.tzset()
