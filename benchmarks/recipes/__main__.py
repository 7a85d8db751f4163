"""``python -m benchmarks.recipes``: write the config files."""

from __future__ import annotations

from benchmarks.recipes import FOLDER, RECIPES, write_recipes

write_recipes()
print(f"{len(RECIPES)} recipes in {FOLDER}")
