"""The models of a run: loaded from names and paths, told apart by what they compute, wrapped for MTEB."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import load_file_path

from rankcse_st.benchmark._mteb import import_mteb, quiet_mteb
from rankcse_st.fingerprints import fingerprint_model, hash_json

ModelLike: TypeAlias = "str | os.PathLike[str] | SentenceTransformer"

#: The organisation of the models that are not on the hub.
LOCAL_ORGANISATION = "local"


@dataclass(frozen=True)
class ModelSource:
    """A model of a run before it is loaded.

    Attributes:
        model: An absolute path, a name on the hub, or a loaded model.
        name: The name given by the caller; None to derive one.
    """

    model: Path | str | SentenceTransformer
    name: str | None = None


@dataclass(frozen=True)
class BenchmarkModel:
    """A loaded model with the identity under which its results are kept.

    Attributes:
        model: The model.
        name: ``organisation/name``: the name on the hub, the caller's, or ``local/FOLDER-HASH``.
        revision: The commit on the hub; for any other model a hash of what its embeddings depend on.
    """

    model: SentenceTransformer
    name: str
    revision: str

    @property
    def label(self) -> str:
        """The name for tables."""
        return self.name.removeprefix(f"{LOCAL_ORGANISATION}/")


def parse_models(models: ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike]) -> list[ModelSource]:
    """The models of a run in order.

    Args:
        models: One model or several, each a path, a name on the hub, or a loaded model; or a mapping from the names
            under which the results are to be kept. A string ``NAME=PATH`` is such a pair too.

    Raises:
        ValueError: If there is no model, or two have the same name.
        FileNotFoundError: If a path does not exist.
    """
    if isinstance(models, (str, os.PathLike, SentenceTransformer)):
        models = [models]
    pairs: Iterable[tuple[str | None, ModelLike]] = (
        models.items() if isinstance(models, Mapping) else ((None, model) for model in models)
    )
    sources = [_parse_model(name, model) for name, model in pairs]
    if not sources:
        raise ValueError("No models to evaluate: give at least one path, name or model.")
    names = [source.name for source in sources if source.name is not None]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Each model needs a name of its own, but {', '.join(twice)} was given more than once.")
    return sources


def _parse_model(name: str | None, model: ModelLike) -> ModelSource:
    if isinstance(model, SentenceTransformer):
        return ModelSource(model, name)
    text = os.fspath(model)
    if name is None and "=" in text and not Path(text).expanduser().exists():
        name, text = text.split("=", 1)
    path = Path(text).expanduser()
    if path.exists():
        # A relative path would be looked up on the hub, which costs half a minute of retries without a network.
        return ModelSource(path.resolve(), name)
    if isinstance(model, os.PathLike) or text.startswith((".", "~", os.sep)) or text.count("/") > 1 or not text:
        raise FileNotFoundError(f"There is no model at {text!r}: give an existing folder, or a name on the hub.")
    return ModelSource(text, name)


def load_model(
    source: ModelSource, *, device: str | torch.device | None = None, trust_remote_code: bool = False
) -> BenchmarkModel:
    """Load a model and give it its name and revision.

    Two models have the same name and revision only if they compute the same embeddings: a hub model is known by its
    commit, every other by a hash of its weights, modules, pooling, tokenizer, prompts and maximum length. MTEB itself
    calls every local model by one name, or by that of the model that it was trained from.
    """
    if isinstance(source.model, SentenceTransformer):
        model, commit = source.model, None
    else:
        model = open_model(source.model, device=device, trust_remote_code=trust_remote_code)
        commit = hub_commit(source.model) if isinstance(source.model, str) else None
    revision = commit or model_revision(model)
    if source.name is not None:
        name = source.name
    elif isinstance(source.model, SentenceTransformer):
        name = "model"
    else:
        name = source.model.name if isinstance(source.model, Path) else source.model
    if "/" not in name:
        name = f"{LOCAL_ORGANISATION}/{_slug(name)}-{revision[:8]}"
    return BenchmarkModel(model, name, revision)


def open_model(
    name: str | os.PathLike[str], *, device: str | torch.device | None = None, trust_remote_code: bool = False
) -> SentenceTransformer:
    """Load a model from a folder or the hub; a bare transformer checkpoint with mean pooling and a warning."""
    name = os.fspath(name)
    if load_file_path(name, "modules.json") is None:
        warnings.warn(
            f"{name!r} is a bare transformer checkpoint, which is read with mean pooling. A SimCSE or DiffCSE "
            "checkpoint must be read at [CLS]: save rankcse_st.load_cls_teacher(...) to a folder and evaluate that.",
            UserWarning,
            stacklevel=2,
        )
    return SentenceTransformer(
        name, device=None if device is None else str(device), trust_remote_code=trust_remote_code
    )


def model_revision(model: SentenceTransformer) -> str:
    """A 16-digit hash of all that a model's benchmark results depend on, the same in every process."""
    return hash_json(
        {
            "model": fingerprint_model(model),
            "prompts": model.prompts,
            "default_prompt_name": model.default_prompt_name,
            "max_seq_length": model.max_seq_length,
            "similarity_fn_name": model.similarity_fn_name,
        }
    )[:16]


def hub_commit(name: str) -> str | None:
    """The commit of a model that was just loaded from the hub, read from the cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    for filename in ("modules.json", "config.json"):
        path = try_to_load_from_cache(name, filename)
        if isinstance(path, str):
            return Path(path).parent.name
    return None


def _slug(name: str) -> str:
    """A name that is also a file name: letters of any alphabet, digits, dots, hyphens and underscores."""
    return re.sub(r"[^\w.\-]+", "-", name).strip("-.") or "model"


def wrap_for_mteb(model: BenchmarkModel) -> Any:
    """MTEB's wrapper with the model's own name and revision, encoding each text once."""
    mteb = import_mteb()
    with quiet_mteb():
        wrapper = mteb.SentenceTransformerEncoderWrapper(model.model)
    parameters = list(model.model.parameters())
    update: dict[str, Any] = {
        "name": model.name,
        "revision": model.revision,
        "n_parameters": sum(parameter.numel() for parameter in parameters),
        "memory_usage_mb": round(sum(parameter.nbytes for parameter in parameters) / 2**20, 1),
    }
    if model.model.similarity_fn_name not in ("cosine", "dot"):
        # MTEB has no pairwise Euclidean or Manhattan similarity and raises; None makes it ask the model.
        update["similarity_fn_name"] = None
    wrapper.mteb_model_meta = wrapper.mteb_model_meta.model_copy(update=update)
    wrapper.model = EncodeOnce(model.model)
    return wrapper


class EncodeOnce:
    """A model that remembers the embeddings of the texts it has encoded, until they fill ``capacity`` bytes.

    The STS tasks share many sentences, and the ranking and geometry tasks consist of them: half of the encoding of a
    full run is saved. Everything else is the model's.
    """

    def __init__(self, model: SentenceTransformer, capacity: int = 512 * 2**20) -> None:
        self._model = model
        self._capacity = capacity
        self._size = 0
        self._rows: dict[tuple[str, str], np.ndarray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, sentences: Any, **kwargs: Any) -> Any:
        return self._encode("encode", self._model.encode, sentences, kwargs)

    def encode_query(self, sentences: Any, **kwargs: Any) -> Any:
        return self._encode("encode_query", self._model.encode_query, sentences, kwargs)

    def encode_document(self, sentences: Any, **kwargs: Any) -> Any:
        return self._encode("encode_document", self._model.encode_document, sentences, kwargs)

    def _encode(self, method: str, encode: Callable[..., Any], sentences: Any, kwargs: dict[str, Any]) -> Any:
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            return encode(sentences, **kwargs)
        # How the texts are batched does not matter, all else does.
        relevant = {k: v for k, v in kwargs.items() if k not in ("batch_size", "show_progress_bar")}
        setting = f"{method} {sorted(relevant.items())!r}"
        new = list(dict.fromkeys(s for s in sentences if (setting, s) not in self._rows))
        if not new and sentences:
            return np.stack([self._rows[setting, sentence] for sentence in sentences])
        embeddings = encode(new if len(new) < len(sentences) else sentences, **kwargs)
        if not isinstance(embeddings, np.ndarray):
            return embeddings if len(new) == len(sentences) else encode(sentences, **kwargs)
        if len(new) == len(sentences):
            self._remember(setting, sentences, embeddings)
            return embeddings
        fresh = dict(zip(new, embeddings, strict=True))
        rows = [fresh[s] if s in fresh else self._rows[setting, s] for s in sentences]
        self._remember(setting, new, embeddings)
        return np.stack(rows)

    def _remember(self, setting: str, sentences: Sequence[str], embeddings: np.ndarray) -> None:
        if self._size + embeddings.nbytes <= self._capacity:
            self._size += embeddings.nbytes
            self._rows.update(((setting, s), row) for s, row in zip(sentences, embeddings, strict=True))
