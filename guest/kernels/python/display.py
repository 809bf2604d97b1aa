"""Shows values as a notebook does: the representations of an object by media type, and figures as images."""

import base64
import os
import sys

_MAX_BYTES = 8 << 20  # of the representations of one value
_TEXT_MAX = 1 << 20

_METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)


class Displays:
    """@param send receives each bundle: `{data, base64, result}`."""

    def __init__(self, send):
        self._send = send
        sys.meta_path.insert(0, _FigureFinder(self))

    def show_result(self, value):
        """`sys.displayhook`: shows the value of the last expression, and assigns it to `_`."""
        if value is None:
            return
        __import__("builtins")._ = value
        self._show(value, True)

    def display(self, *values):
        """Shows values in their richest representations."""
        for value in values:
            self._show(value, False)

    def show_figures(self):
        """Shows the figures of matplotlib that are open, and closes them."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        if helpers is not None:
            for manager in helpers.Gcf.get_all_fig_managers():
                self.show_figure(manager.canvas.figure)
                helpers.Gcf.destroy(manager)

    def show_figure(self, figure):
        self._send_bundle({"text/plain": repr(figure), "image/png": _figure_png(figure)}, False)

    def _show(self, value, is_result):
        _flush()
        self._send_bundle(_representations(value), is_result)

    def _send_bundle(self, found, is_result):
        data, encoded, size = {}, [], 0
        for kind, content in found.items():
            if isinstance(content, (bytes, bytearray)):
                content = base64.b64encode(content).decode("ascii")
                encoded.append(kind)
            elif not isinstance(content, str):
                content = _as_json(content)
            size += len(content)
            if kind == "text/plain" and len(content) > _TEXT_MAX:
                content = content[:_TEXT_MAX] + "\n… (%d characters in all)" % len(content)
            elif size > _MAX_BYTES:
                encoded = [name for name in encoded if name != kind]
                continue
            data[kind] = content
        self._send({"data": data, "base64": encoded, "result": is_result})


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def _as_json(value):
    import json

    return json.dumps(value, default=str)


def _representations(value):
    found = {"text/plain": repr(value)}
    if isinstance(value, type):
        return found
    if _is_figure(value):
        found["image/png"] = _figure_png(value)
        # It is shown now, and not again at the end of the call.
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        for manager in helpers.Gcf.get_all_fig_managers() if helpers else ():
            if manager.canvas.figure is value:
                helpers.Gcf.destroy(manager)
        return found
    bundle = _call(value, "_repr_mimebundle_")
    if isinstance(bundle, dict):
        found.update((str(kind), content) for kind, content in bundle.items() if content is not None)
    for name, kind in _METHODS:
        if kind in found:
            continue
        content = _call(value, name)
        if content is not None:
            found[kind] = content
    return found


def _call(value, name):
    # An object that answers to any name, such as a mock, has no representation.
    method = getattr(type(value), name, None)
    if method is None or not callable(method):
        return None
    try:
        content = method(value)
    except Exception:
        return None
    return content[0] if isinstance(content, tuple) and content else content


def _is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def _figure_png(figure):
    import io

    image = io.BytesIO()
    figure.canvas.print_figure(image, format="png", bbox_inches="tight")
    return image.getvalue()


class _FigureFinder:
    """Makes matplotlib of this process, and not of those that it starts, use the backend of glovebox_figures_kernel."""

    _BACKEND = "glovebox_figures_kernel"

    def __init__(self, displays):
        self._displays = displays

    def find_spec(self, name, path=None, target=None):
        if name == self._BACKEND:
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, self)
        if name != "matplotlib":
            return None
        sys.meta_path.remove(self)
        try:
            from importlib.util import find_spec

            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self._import(execute, module)
        return spec

    def _import(self, execute, module):
        before = os.environ.get("MPLBACKEND")
        if before in (None, "", "module://glovebox_figures"):
            os.environ["MPLBACKEND"] = "module://" + self._BACKEND
        try:
            execute(module)
        finally:
            if before is None:
                os.environ.pop("MPLBACKEND", None)
            else:
                os.environ["MPLBACKEND"] = before

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        """The backend: draws with Agg; `show` sends the figures."""
        from matplotlib.backend_bases import FigureManagerBase
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        displays = self._displays

        class FigureManager(FigureManagerBase):
            def show(self):
                from matplotlib._pylab_helpers import Gcf

                displays.show_figure(self.canvas.figure)
                Gcf.destroy(self)

        class FigureCanvas(FigureCanvasAgg):
            manager_class = FigureManager

        def show(*args, **kwargs):
            displays.show_figures()

        module.FigureManager = FigureManager
        module.FigureCanvas = FigureCanvas
        module.show = show
