"""Starts the Python kernel. Usage:

    main.py COPIES CONTEXT

COPIES is the number of calls that can be rewound, see rewind.py; `+files` after it is for core.

Where there is a built-in function `_glovebox_spare`, this is the spare interpreter of a slot (guest/python/spare.c): it imports everything
and waits there until it has become the kernel of a sandbox.
"""

import _frozen_importlib_external
import sys
import types

_DIRECTORY = sys.path[0]


def _load(name):
    """Loads a module of the kernel under a name that no module of the code has.

    The loader uses bytecode where the image has it for this interpreter, and writes none.
    """
    full = "glovebox_kernel_" + name
    path = "%s/%s.py" % (_DIRECTORY, name)
    module = types.ModuleType(full)
    module.__file__ = path
    wrote = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    code = _frozen_importlib_external.SourceFileLoader(full, path).get_code(full)
    sys.dont_write_bytecode = wrote
    exec(code, module.__dict__)
    return module


_kernel = _load("kernel")
_kernel.load(_load)
_wait = vars(_kernel.builtins).pop("_glovebox_spare", None)
if _wait is not None:
    _wait(_load("spare").fits)
_kernel.serve(_load, int(sys.argv[1].split("+")[0]))
