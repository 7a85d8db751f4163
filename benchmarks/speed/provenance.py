"""What every raw result says about itself: the command that made it, versions, the machine."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("rankcse-st", "sentence-transformers", "transformers", "datasets", "accelerate", "torch", "numpy")


def provenance() -> dict[str, Any]:
    """The command line, with names for paths, and what it ran on."""
    module = sys.modules["__main__"].__spec__
    name = module.name.removesuffix(".__main__") if module is not None else Path(sys.argv[0]).name
    arguments = [Path(argument).name if Path(argument).is_absolute() else argument for argument in sys.argv[1:]]
    return {
        "command": " ".join(["python", "-m", name, *arguments]),
        "processors": os.cpu_count(),
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
    }
