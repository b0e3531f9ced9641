"""A terminal is shown what data files hold, and never obeys it."""

import json
import os
import pty
import subprocess
import sys
from io import StringIO

import pytest
from rich.table import Table
from rich.text import Text

from weft.terminal import Terminal, TerminalFilter

TITLE = "\x1b]0;pwned\x07"  # sets the title of a window
SHOWN = "\\x1b]0;pwned\\x07"


def in_terminal(*arguments: str, home: str) -> str:
    """What a terminal is sent when the command runs in it."""
    master, slave = pty.openpty()
    code = "from weft.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=slave, stdout=slave, stderr=slave, cwd=home,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    ) as child:  # fmt: skip
        os.close(slave)
        sent = b""
        try:
            while piece := os.read(master, 4096):
                sent += piece
        except OSError:  # how Linux says that the other side is closed
            pass
        child.wait()
    os.close(master)
    return sent.decode("utf-8")


@pytest.fixture
def data(tmp_path):
    rows = [
        {"text": f"{TITLE}text number {i} \x9b2J", "label": (f"{TITLE}[bold]a", "b")[i % 2]}
        for i in range(40)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize("verb", ["check", "error"])
def test_labels_texts_and_messages_are_shown(data, tmp_path, verb):
    if verb == "check":
        sent = in_terminal("check", "a.jsonl", home=str(tmp_path))
        assert f"labels: {SHOWN}[bold]a 20" in sent  # no markup either
    else:
        (tmp_path / "b.jsonl").write_text(json.dumps({"text": "a", TITLE: 1}) + "\n", "utf-8")
        sent = in_terminal("check", "b.jsonl", "--label", f"x{TITLE}", home=str(tmp_path))
        assert "error:" in sent
    assert SHOWN in sent
    assert "\x1b]" not in sent
    assert "\x07" not in sent
    assert "\x9b" not in sent


def test_output_to_a_pipe_is_verbatim(data, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "weft", "check", str(data), "--json"], capture_output=True, text=True
    )
    assert f"{TITLE}[bold]a" in json.loads(done.stdout)["labels"]


def test_a_console_spells_out_what_it_is_given():
    out = StringIO()
    console = Terminal(file=out, force_terminal=True, color_system="truecolor", width=99)
    table = Table("[red]name[/red]")
    table.add_row(f"[bold]{TITLE} :smile:")
    console.print(table)
    console.print(Text(f"{TITLE}\x1b[2J", "red"))
    sent = out.getvalue()
    assert f"[bold]{SHOWN} :smile:" in sent
    assert "[red]name[/red]" in sent
    assert "\x1b[31m" in sent  # its own colour
    assert "\x1b]" not in sent
    assert "\x1b[2J" not in sent


def test_the_guard_changes_nothing_else():
    out = StringIO()
    guard = TerminalFilter(out)
    assert guard.write("a\tb\n\x1bé\u200d") == 7
    guard.writelines(["\r", "c"])
    assert out.getvalue() == "a\tb\n\\x1bé\u200d\\x0dc"
    assert not guard.isatty()
