"""Templates of the package; everything that goes into them is escaped."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


@cache
def _environment() -> Environment:
    loader = PackageLoader("motley.report")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def template(name: str) -> Template:
    """Return a template by its file name."""
    return _environment().get_template(name)
