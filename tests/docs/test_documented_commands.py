"""What the documentation says to type can be typed, and what it links to is there."""

import re
import shlex
from pathlib import Path

import pytest

from motley.cli.main import build_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]
COMMAND = re.compile(r"^\s*(?:\$ )?((?:python -m )?motley (?:.|\\\n)*?)(?<!\\)$", re.MULTILINE)


def commands_of(text: str) -> list[list[str]]:
    """Return the words of every motley command in the blocks of code of a page."""
    found = []
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        for command in COMMAND.findall(block):
            words = shlex.split(command.replace("\\\n", " ").split(" >")[0].split(" |")[0], comments=True)
            found.append(words[words.index("motley") + 1 :])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_exists_with_its_options(page):
    for words in commands_of(page.read_text(encoding="utf-8")):
        if words and words[0] not in {"--help", "--version"}:
            build_app(words[0]).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


def test_commands_over_several_lines_are_found_whole():
    text = "```\n$ motley run fedtopo \\\n    --rounds 3  # soon\nmotley list > file\nother\n```\n"
    assert commands_of(text) == [["run", "fedtopo", "--rounds", "3"], ["list"]]
