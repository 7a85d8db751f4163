"""Load teachers from names and paths, with the pooling they were made for, and read a model as a teacher."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.util import load_file_path
from transformers import AutoConfig

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def load_teacher_model(
    name: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> SentenceTransformer | CrossEncoder:
    """Load one teacher, all its weights in ``dtype`` whatever the checkpoint's.

    A checkpoint without ``modules.json`` is a bare transformer: one with a classification head is loaded as a
    :class:`~sentence_transformers.CrossEncoder`, any other with mean pooling and a warning that this was guessed.

    Args:
        name: A path, or a name on the Hugging Face Hub.
        device: Where to put it; by default where sentence-transformers does (a GPU if there is one).
        dtype: The dtype of the weights.

    Raises:
        FileNotFoundError: If ``name`` looks like a path and nothing is there.
    """
    name = os.fspath(name)
    _check_path(name)
    options: dict[str, Any] = {
        "device": str(device) if device is not None else _device_of_process(),
        # Left alone, transformers loads a half-precision checkpoint in half precision.
        "model_kwargs": {"dtype": dtype},
    }
    kind = _model_type(name)
    model: SentenceTransformer | CrossEncoder
    if kind == "CrossEncoder":
        model = CrossEncoder(name, **options)
    elif kind in ("SentenceTransformer", None):
        model = SentenceTransformer(name, **options)
    else:
        raise ValueError(
            f"Teacher {name!r} is a {kind}: a teacher is a SentenceTransformer or, for lists of candidates, a "
            "CrossEncoder."
        )
    if kind is None:
        pooling = ", ".join(str(module.pooling_mode) for module in model if isinstance(module, Pooling)) or "no"
        warnings.warn(
            f"Teacher {name!r} is a bare transformer checkpoint, which does not say how its sentence embeddings are "
            f"pooled: {pooling} pooling was guessed. A SimCSE or DiffCSE checkpoint must be read at [CLS] (the wrong "
            "pooling costs about 20 points on STS): load it with rankcse_st.load_cls_teacher(...). Otherwise give a "
            "SentenceTransformer whose pooling you have chosen.",
            UserWarning,
            stacklevel=2,
        )
    model.to(dtype)
    return model.eval()


def load_cls_teacher(
    model_name_or_path: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    max_seq_length: int | None = None,
    revision: str | None = None,
) -> SentenceTransformer:
    """Load a SimCSE, DiffCSE or other BERT-like checkpoint as a teacher that is read at [CLS].

    The embedding is the last layer's hidden state of the first token. The head on top of it (BERT's pooler or the MLP
    that SimCSE and DiffCSE train with), if the checkpoint has one, is left out, as in SimCSE's evaluation of its
    unsupervised models (``cls_before_pooler``).

    Args:
        model_name_or_path: A folder or a name on the Hugging Face Hub that holds a transformers checkpoint.
        device: Where to put it; by default where sentence-transformers does.
        dtype: The dtype of the weights.
        max_seq_length: The maximum length in tokens; by default the checkpoint's.
        revision: The branch, tag or commit on the Hub.

    Returns:
        An ordinary ``SentenceTransformer`` in eval mode, which can be saved with its pooling.

    References:
        - SimCSE: https://arxiv.org/abs/2104.08821
        - DiffCSE: https://arxiv.org/abs/2204.10298

    Example:
        ::

            from rankcse_st import Teacher, TeacherScoreDataset, load_cls_teacher

            simcse = load_cls_teacher("princeton-nlp/unsup-simcse-bert-base-uncased")
            diffcse = load_cls_teacher("voidism/diffcse-bert-base-uncased-sts")
            train = TeacherScoreDataset.from_sentences(
                sentences, [Teacher(simcse, weight=1.0), Teacher(diffcse, weight=2.0)]
            )
    """
    name = os.fspath(model_name_or_path)
    _check_path(name)
    shared = {} if revision is None else {"revision": revision}
    transformer = Transformer(
        name, model_kwargs={"dtype": dtype, **shared}, processor_kwargs=dict(shared), config_kwargs=dict(shared)
    )
    if max_seq_length is not None:
        transformer.max_seq_length = max_seq_length
    if getattr(transformer.model, "pooler", None) is not None:
        # Never read here; where the checkpoint has none, transformers has filled it at random.
        transformer.model.pooler = None
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")
    model = SentenceTransformer(modules=[transformer, pooling], device=None if device is None else str(device))
    return model.to(dtype).eval()


@contextlib.contextmanager
def as_teacher(model: SentenceTransformer | CrossEncoder, max_seq_length: int | None) -> Iterator[None]:
    """Let ``model`` be read as a teacher, and leave it as it was: mode of each module and maximum length.

    Mixed precision is off inside: under the trainer's autocast live scores would be less exact than attached ones.
    """
    modes = [(module, module.training) for module in model.modules()]
    length = model.max_seq_length
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
    try:
        with _no_autocast(model.device):
            yield
    finally:
        if max_seq_length is not None:
            model.max_seq_length = length
        for module, mode in modes:
            module.training = mode


def _no_autocast(device: torch.device) -> contextlib.AbstractContextManager[None]:
    known = device.type in ("cpu", "cuda", "xpu")
    return torch.autocast(device.type, enabled=False) if known else contextlib.nullcontext()


def _check_path(name: str) -> None:
    """Tell a missing folder from a name on the Hub, which would be a confusing download error."""
    looks_like_path = name.startswith((".", "~", os.sep)) or name.count("/") > 1 or (os.sep != "/" and os.sep in name)
    if looks_like_path and not Path(name).exists():
        raise FileNotFoundError(f"There is no teacher at {name!r}: give an existing folder or a name on the Hub.")


def _device_of_process() -> str | None:
    """The GPU that a launcher means for this process; sentence-transformers would put all on the first one."""
    if torch.cuda.is_available() and "LOCAL_RANK" in os.environ:
        return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
    return None


def _model_type(name: str) -> str | None:
    """The sentence-transformers class that the checkpoint was made for; None for a bare encoder."""
    config_path = load_file_path(name, "config_sentence_transformers.json")
    if config_path is not None:
        model_type = json.loads(Path(config_path).read_text(encoding="utf-8")).get("model_type")
        if model_type is not None:
            return str(model_type)
    if load_file_path(name, "modules.json") is not None:
        return "SentenceTransformer"
    if load_file_path(name, "config.json") is not None:
        architectures = AutoConfig.from_pretrained(name).architectures or []
        # Cross-encoders saved before sentence-transformers wrote modules.json for them.
        if any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
            return "CrossEncoder"
    return None
