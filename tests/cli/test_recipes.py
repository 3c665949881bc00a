"""Every recipe is accepted as it stands; what it costs is not tried here."""

import tomllib
from pathlib import Path

import pytest

from motley.engine.comparison import plan_comparison
from motley.engine.sweep import plan_sweep, read_sweep

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: str(path.relative_to(RECIPES)))
def test_a_recipe_is_accepted_and_names_itself(path):
    text = path.read_text(encoding="utf-8")
    assert f"recipes/{path.relative_to(RECIPES)}" in text
    file, grid = read_sweep(path)
    plan = plan_comparison(file, {}, {})
    if grid:
        plan_sweep(plan, grid)
    paper = tomllib.loads(text).get("paper", {})
    tables = [paper.get("values", {}), *paper.get("points", {}).values()]
    assert all(set(values) <= set(plan.names) for values in tables)  # no published figure is lost for a wrong name


def test_published_points_are_points_of_their_sweep():
    for path in RECIPES.rglob("*.toml"):
        file, grid = read_sweep(path)
        points = file.paper.get("points", {})
        if points:
            plans = plan_sweep(plan_comparison(file, {}, {}), grid).plans
            found = [plan.paper["values"] for plan in plans if plan.paper.get("values")]
            assert found == list(points.values()), path.name
