"""Read, set and check a model's dropout, whatever its architecture calls it.

Two views of a sentence differ by dropout alone. Architectures keep it under many names (``hidden_dropout_prob``,
``attention_dropout``, ``dropout_rate``, ``mlp_dropout``, ``attn_pdrop``, ...), many current ones ship with 0.0, and a
field of the config that is changed after the model was built changes nothing. So the functions here look at what acts:
the dropout modules, the probabilities that modules hand to functional dropout, and the places where a model built with
probability 0 holds an ``nn.Identity`` instead of a dropout module.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

__all__ = ["get_dropout", "has_active_dropout", "set_dropout"]

# The base class of nn.Dropout, nn.Dropout1d, nn.AlphaDropout, ... has no public name.
_DROPOUT_MODULES = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
# Names of probabilities and of modules, across transformers, PEFT and torch itself. Not layerdrop, drop_path and the
# like: they leave out whole layers, which is not the dropout of two views.
_DROPOUT_NAME = re.compile(r"dropout|pdrop|(^|_)drop$")

_SENTENCES = (
    "The cat sleeps on the sofa while it rains.",
    "A small boat crossed the river before anybody was awake.",
)


@dataclass(frozen=True)
class _Place:
    """One place where dropout acts: an attribute of a module that is a probability, or a module standing for one."""

    name: str
    owner: nn.Module
    attribute: str

    def get(self) -> float:
        value = getattr(self.owner, self.attribute)
        if isinstance(value, nn.Module):
            return value.p if isinstance(value, nn.Dropout) else 0.0
        return float(value)

    def set(self, p: float) -> None:
        if isinstance(getattr(self.owner, self.attribute), nn.Module):
            module = nn.Dropout(p) if p > 0.0 else nn.Identity()
            setattr(self.owner, self.attribute, module.train(self.owner.training))
        else:
            setattr(self.owner, self.attribute, p)


def get_dropout(model: nn.Module) -> dict[str, float]:
    """Read every dropout probability that acts in a model while it trains.

    Args:
        model: A :class:`~sentence_transformers.SentenceTransformer`, or any other module.

    Returns:
        Probability by place, in the order of the model's modules. A place is the dotted name of a dropout module, or of
        a module and the attribute that it hands to functional dropout. Layers that agree share one entry, with ``*``
        for their number. Empty for a model that has no dropout, such as one made of ``StaticEmbedding``.

    Example:
        ::

            >>> get_dropout(SentenceTransformer("answerdotai/ModernBERT-base"))
            {'0.model.embeddings.drop': 0.0,
             '0.model.layers.*.attn.attention_dropout': 0.0,
             '0.model.layers.*.attn.out_drop': 0.0,
             '0.model.layers.*.mlp.drop': 0.0}
    """
    groups: dict[str, list[_Place]] = defaultdict(list)
    for place in _places(model):
        groups[_pattern(place.name)].append(place)
    dropout: dict[str, float] = {}
    for pattern, places in groups.items():
        if len({place.get() for place in places}) == 1:
            dropout[pattern] = places[0].get()
        else:
            dropout |= {place.name: place.get() for place in places}
    return dropout


def set_dropout(model: SentenceTransformer, p: float | Mapping[str, float], *, verify: bool = True) -> None:
    """Set the dropout with which a model trains, and check that it acts.

    Call it before the trainer or the loss is made. It changes the model in memory, not its config: dropout belongs to a
    training run, and the saved model's ``config.json`` (or ``adapter_config.json``) stays that of the model it came
    from. A run that is resumed from a checkpoint needs the same call again, as any script that builds its model does.

    Args:
        model: The student. Adapters of PEFT are part of it (``lora_dropout``); add them before.
        p: Probability, in [0, 1), for every place where dropout acts; or a mapping as :func:`get_dropout` returns it,
            for some or all places. ``set_dropout(model, get_dropout(model))`` changes nothing.
        verify: Run the model twice on two short sentences (see :func:`has_active_dropout`) to see that the passes
            differ for ``p > 0`` and coincide for ``p = 0``.

    Raises:
        ValueError: If a probability is not in [0, 1); if the mapping names a place that the model does not have; if
            ``p > 0`` and the model has no dropout that is known here, or does not apply it; if ``p = 0`` and passes
            still differ. The error names the model's classes, and the model is left as it was.

    Example:
        ::

            model = SentenceTransformer("answerdotai/ModernBERT-base")  # trained without dropout: all 0.0
            set_dropout(model, 0.1)
            loss = RankCSELoss(model, teachers=["sentence-transformers/all-mpnet-base-v2"])
    """
    places = list(_places(model))
    before = [place.get() for place in places]
    wanted = _wanted(model, places, p)
    try:
        if verify:
            # Probabilities too small to hit anything in two short sentences are verified at 0.5.
            _assign(places, [0.5 if value > 0.0 else 0.0 for value in wanted])
            _verify(model, expected=any(value > 0.0 for value in wanted))
        _assign(places, wanted)
    except BaseException:
        _assign(places, before)
        raise


def has_active_dropout(model: SentenceTransformer, sentences: Sequence[str] = _SENTENCES) -> bool:
    """Tell whether two passes of the model in training mode differ, as the two views of a sentence must.

    The model's modes and the global random state (of the CPU and of the model's CUDA device) are left as they were.

    Args:
        model: The student.
        sentences: What to embed, twice. The default is enough for probabilities from about 0.001.

    Returns:
        Whether any embedding of the second pass differs from the first pass by more than rounding.
    """
    device = model.device
    modes = [(module, module.training) for module in model.modules()]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
        try:
            for module, _ in modes:
                # Running statistics (batch normalisation) would be updated by a pass in training mode.
                module.training = not getattr(module, "track_running_stats", False)
            first, second = (_embed(model, sentences) for _ in range(2))
        finally:
            for module, training in modes:
                module.training = training
    return bool(((first - second).norm() > 1e-5 * first.norm()).item())


def _embed(model: SentenceTransformer, sentences: Sequence[str]) -> Tensor:
    features = batch_to_device(model.preprocess(list(sentences)), model.device)
    return cast(Tensor, model(features)["sentence_embedding"]).float()


def _places(model: nn.Module) -> Iterator[_Place]:
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(module, _DROPOUT_MODULES):
            yield _Place(name, module, "p")
            continue
        # Modules of Sentence Transformers apply dropout by submodules; a probability among their attributes only
        # repeats what their config said.
        if not isinstance(module, Module):
            for attribute, value in vars(module).items():
                if _is_probability(value) and _DROPOUT_NAME.search(attribute):
                    yield _Place(prefix + attribute, module, attribute)
        for attribute, child in module.named_children():
            # PEFT keeps the module for an adapter in a dictionary: lora_dropout.default
            if isinstance(child, nn.Identity) and _DROPOUT_NAME.search(name.rpartition(".")[-1] + "." + attribute):
                yield _Place(prefix + attribute, module, attribute)


def _is_probability(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value < 1.0


def _pattern(name: str) -> str:
    """``0.model.encoder.layer.11.output.dropout`` -> ``0.model.encoder.layer.*.output.dropout``."""
    first, *rest = name.split(".")
    return ".".join([first, *("*" if part.isdigit() else part for part in rest)])


def _wanted(model: nn.Module, places: Sequence[_Place], p: float | Mapping[str, float]) -> list[float]:
    """The probability of each place after the change; raises before anything is changed."""
    for value in p.values() if isinstance(p, Mapping) else [p]:
        if not _is_probability(value):
            raise ValueError(f"Expected a dropout probability in [0, 1), got {value!r}.")
    if not isinstance(p, Mapping):
        if p > 0.0 and not places:
            raise ValueError(
                f"Found no dropout in {_classes(model)}: two views of a sentence cannot differ. Train with the "
                "distillation term alone, which needs one view only (contrastive_weight=0, consistency_weight=0)."
            )
        return [float(p)] * len(places)
    if unknown := [name for name in p if not any(name in (place.name, _pattern(place.name)) for place in places)]:
        raise ValueError(f"{_classes(model)} has dropout at {list(get_dropout(model))}, but not at {unknown}.")
    return [float(p.get(place.name, p.get(_pattern(place.name), place.get()))) for place in places]


def _assign(places: Sequence[_Place], values: Sequence[float]) -> None:
    for place, value in zip(places, values, strict=True):
        place.set(value)


def _verify(model: SentenceTransformer, *, expected: bool) -> None:
    active = has_active_dropout(model)
    if expected and not active:
        raise ValueError(
            f"Dropout was set in {_classes(model)}, but two training passes still coincide: the model does not apply "
            "what was found. Load it with the fields of its config that its code reads, e.g. "
            'SentenceTransformer(..., config_kwargs={"attention_dropout": 0.1}).'
        )
    if active and not expected:
        raise ValueError(
            f"All dropout that is known in {_classes(model)} is 0, but two training passes still differ: it has "
            "another source of noise (layerdrop, drop path or a dropout of its own), which its config may control."
        )


def _classes(model: nn.Module) -> str:
    """``SentenceTransformer(Transformer(BertModel), Pooling)``, to be named in an error."""
    names = []
    for module in model.children():
        backbone = getattr(module, "model", None)
        inner = f"({type(backbone).__name__})" if isinstance(backbone, nn.Module) else ""
        names.append(type(module).__name__ + inner)
    return f"{type(model).__name__}({', '.join(names)})"
