"""Make docs/demo.svg, the picture in the README: python3 tools/make_demo_picture.py

The picture is what a terminal shows of a real run of `fmq demo`: its parts 2 to 6, from the kill to
what readers see afterwards. tests/cli/test_demo.py finds the headings of the demo in it.
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
COLUMNS = 88
FIRST, LAST = 2, 6
HEADING = re.compile(r"^(?:\x1b\[1m)?(\d)  \S", re.MULTILINE)

# As rich has it, but with fonts of the reader's machine: a picture loads nothing from elsewhere.
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Made of a run of `fmq demo` by tools/make_demo_picture.py. -->
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_on_a_terminal() -> str:
    """Run the demo in an empty directory, and return what it has written to its terminal."""
    outer, inner = pty.openpty()
    terminal = {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PATH": os.environ["PATH"]}
    with tempfile.TemporaryDirectory() as home:
        child = subprocess.Popen(
            [sys.executable, "-m", "fmq", "demo"],
            cwd=home,
            env=terminal,
            stdin=inner,
            stdout=inner,
            stderr=inner,
        )
        os.close(inner)
        said = b""
        try:
            while piece := os.read(outer, 65536):
                said += piece
        except OSError:
            pass  # the child has ended, and its terminal with it
        if child.wait():
            sys.exit(said.decode())
    os.close(outer)
    return said.decode().replace("\r\n", "\n")


def parts(said: str) -> str:
    """Return the parts FIRST to LAST of the story."""
    starts = {int(found[1]): found.start() for found in HEADING.finditer(said)}
    return said[starts[FIRST] : starts[LAST + 1]].rstrip()


def picture(said: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(said))
    svg = console.export_svg(title="fmq demo", code_format=SVG, unique_id="demo")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(parts(run_on_a_terminal())))
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes")
