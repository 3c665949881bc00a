"""Help texts and start-up: what a user reads first, and how soon."""

import json
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from importlib.metadata import entry_points
from typing import get_args, get_type_hints

import pytest
from cyclopts import App

from motley.cli.catalog import CATALOG, build_catalog
from motley.cli.main import COMMANDS, build_app
from motley.engine.config import flag_fields
from motley.methods.registry import find_method, method_names
from motley.options import Settings

PAGES = [(name,) for name in COMMANDS] + [("run", name) for name in method_names()]


def shown(text: str) -> str:
    """Return a help screen as one line of words, without its frames."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("words", [("--help",), ("list", "--json"), ("list", "models"), ("--version",), ("runn",)])
def test_no_torch_is_imported_for_help_and_lists(words, tmp_path):
    code = (
        "import sys; from motley.cli.main import main; main(sys.argv[1:]); "
        "sys.exit(3 if {'torch', 'numpy', 'pandas'} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done


def test_the_module_is_the_command(process):
    (script,) = entry_points(group="console_scripts", name="motley")
    assert script.value == "motley.cli.main:main"
    module = process("--help")
    code = "import sys; from motley.cli.main import main; sys.argv[0] = 'motley'; sys.exit(main())"
    called = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (module.status, module.out, module.err) == (0, called.stdout, "")


def test_without_words_the_help_is_shown(motley):
    said = motley()
    assert said.status == 0
    assert said.out == motley("--help").out


@pytest.mark.parametrize("page", [(), *PAGES], ids=" ".join)
def test_the_help_begins_with_an_example(page, motley):
    said = motley(*page, "--help")
    assert (said.status, said.err) == (0, "")
    before_options = said.out.partition("╭")[0]
    assert re.search(rf"^ {' '.join(['motley', *page])}\b", before_options, re.MULTILINE), before_options
    for example in examples(page):
        assert re.search(rf"^ ?{re.escape(example)} *$", before_options, re.MULTILINE), f"{example} is broken in two"


def examples(page: tuple[str, ...]) -> list[str]:
    app = build_app(page[0] if page else "")
    for word in page:
        app = app[word]
    text = str(app.help or app.default_command.__doc__)
    return [line for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("page", [(), *PAGES], ids=" ".join)
def test_every_example_in_a_help_text_is_a_command(page):
    found = examples(page)
    assert found
    for line in found:
        program, *words = line.split()
        assert program == "motley"
        build_app(words[0]).parse_args(words, exit_on_error=False, print_error=False)


def flags_of(app: App) -> dict[str, str]:
    """Return the help text of every flag."""
    return {one.name: str(one.parameter.help) for one in app.assemble_argument_collection()}


def test_flags_show_ranges_and_defaults_of_the_options_classes(motley):
    run = build_app("run")["run"]
    for name in method_names():
        entry = find_method(name)
        places = {field.name: (entry.options, field.name) for field in fields(entry.options)}
        kinds = get_type_hints(Settings)
        places |= {flag: (kinds[section], field) for flag, (section, field) in flag_fields().items()}
        flags = flags_of(run[name])
        for flag, (owner, field_name) in places.items():
            text = flags[f"--{flag.replace('_', '-')}"]
            field = next(one for one in fields(owner) if one.name == field_name)
            _, about = get_args(get_type_hints(owner, include_extras=True)[field_name])
            assert text.startswith(about.description)
            assert field.default is not MISSING
            default = {None: "none", (): "none", True: "true", False: "false"}.get(field.default, field.default)
            if isinstance(field.default, int | float) and not isinstance(field.default, bool):
                default = field.default
            assert re.search(rf"\[default: {re.escape(str(default))}[;\]]", text), text
            for rule in about.metadata:
                for word, sign in {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}.items():
                    if hasattr(rule, word):
                        assert re.search(rf"; {sign} {getattr(rule, word)}[;\]]", text), text
        page = shown(motley("run", name, "--help").out)
        assert f"Method ({name})" in page or not fields(entry.options)
        others = {one.name for other in method_names() for one in fields(find_method(other).options)}
        foreign = {f"--{one.replace('_', '-')}" for one in others} - set(flags)
        assert not [flag for flag in foreign if f" {flag} " in page], "only the chosen method's options are shown"


def test_the_stored_catalog_is_what_the_code_says():
    assert json.loads(CATALOG.read_text(encoding="utf-8")) == json.loads(json.dumps(build_catalog()))


def test_lists_are_tables_and_json(motley, refuses):
    said = motley("list", "--json")
    content = json.loads(said.out)
    assert (said.status, said.err) == (0, "")
    assert list(content) == ["methods", "models", "sources", "partitions"]
    assert {one["name"] for one in content["methods"]} >= {"local", "fedtopo", "crad"}
    for kind, entries in content.items():
        table = motley("list", kind)
        assert table.status == 0
        for entry in entries:
            assert (entry["name"] if kind == "methods" else entry) in table.out
    refuses("list modles", "'modles'", "models")
