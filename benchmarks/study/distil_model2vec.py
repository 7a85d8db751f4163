"""The teacher distilled by model2vec, as a folder: ``python -m benchmarks.study.distil_model2vec TEACHER FOLDER``.

Run it where model2vec is installed with what it needs to distil (``pip install 'model2vec[distill]'``). It may ask for
another transformers than the rest, so an environment of its own is best.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer


def main(
    teacher: Annotated[str, typer.Argument(help="The model to distil: a folder or a name.")],
    folder: Annotated[Path, typer.Argument(help="Where the static model goes.")],
) -> None:
    """Distil with model2vec's own defaults."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    static = StaticEmbedding.from_distillation(teacher, device="cpu")
    SentenceTransformer(modules=[static], device="cpu").save_pretrained(str(folder), create_model_card=False)


if __name__ == "__main__":
    typer.run(main)
