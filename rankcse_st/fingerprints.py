"""What identifies a teacher: everything its scores depend on and nothing else.

Two teachers have one fingerprint exactly if they give one sentence the same embedding: the weights, the tokenizer, the
modules with their configuration (pooling, normalisation), the prompt and the maximum length are hashed; where the
model was loaded from, the device and the batch size are not. The same model has the same fingerprint in every process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import nn

#: Part of every fingerprint: raise it when the same teacher would be scored in another way by new code.
SCHEME = "1"

# Settings of a transformers configuration that say how it was saved or trained, not what it computes in eval mode.
_CONFIG_NOT_IN_SCORES = {
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "dtype",
    "initializer_factor",
    "initializer_range",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}


class UnidentifiedModelError(ValueError):
    """A model's weights are out of reach, so nothing tells it from another one."""


def hash_json(value: Any) -> str:
    """A 32-digit hash of a JSON-able value, whatever the order of its keys; other objects count by their type."""
    text = json.dumps(
        _with_text_keys(value), sort_keys=True, default=lambda thing: f"{type(thing).__module__}.{type(thing).__name__}"
    )
    return _hash(text)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _with_text_keys(value: Any) -> Any:
    """JSON has no other keys than text; transformers and sentence-transformers use numbers and tuples too."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def fingerprint_model(model: SentenceTransformer | CrossEncoder) -> str:
    """The fingerprint of a model's embeddings (or of a cross-encoder's scores), prompt and length left out.

    It reads every weight once (about a second for each gigabyte).

    Raises:
        UnidentifiedModelError: If a transformer runs outside torch (ONNX, OpenVINO), where its weights cannot be read.
    """
    for module in model.modules():
        if isinstance(module, Transformer) and not module.state_dict():
            raise UnidentifiedModelError(
                f"The weights of a {type(module.model).__name__} cannot be read, so its scores cannot be told from "
                "those of another model of its size, and cannot be kept in a cache: load it with "
                'backend="torch", or score without cache_dir.'
            )
    parts: dict[str, Any] = {
        "scheme": SCHEME,
        "modules": [_describe_module(module) for module in model],
        "weights": _hash_weights(model),
    }
    if isinstance(model, CrossEncoder):
        parts["activation_fn"] = repr(model.activation_fn)
    else:
        parts["truncate_dim"] = model.truncate_dim
    return hash_json(parts)


def _describe_module(module: nn.Module) -> dict[str, Any]:
    """Class and configuration of one module of a model, its submodules included where the configuration is theirs."""
    described: dict[str, Any] = {"class": type(module).__name__}
    get_config_dict = getattr(module, "get_config_dict", None)
    # A module that cannot describe itself is described by torch: classes, sizes and constants of all its parts.
    described["config"] = get_config_dict() if callable(get_config_dict) else repr(module)
    if isinstance(module, Transformer):
        described["transformer"] = _describe_config(module.model.config.to_dict())
    tokenizer = getattr(module, "tokenizer", None)
    if tokenizer is not None:
        described["tokenizer"] = _describe_tokenizer(tokenizer)
    # Router keeps a model's modules inside, by task.
    sub_modules = getattr(module, "sub_modules", None)
    if isinstance(sub_modules, nn.ModuleDict):
        described["routes"] = {
            route: [_describe_module(child) for child in children.children()] for route, children in sub_modules.items()
        }
    return described


def _describe_config(config: dict[Any, Any]) -> dict[Any, Any]:
    return {
        key: _describe_config(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in _CONFIG_NOT_IN_SCORES and "drop" not in str(key)
    }


def _describe_tokenizer(tokenizer: Any) -> Any:
    """The rules and the vocabulary of a tokenizer, without the truncation and padding of its last call."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        rules = json.loads(backend.to_str())
        rules.pop("truncation", None)
        rules.pop("padding", None)
        described: dict[str, Any] = {"rules": _hash(json.dumps(rules, sort_keys=True))}
    else:
        described = {"class": type(tokenizer).__name__, "vocabulary": hash_json(tokenizer.get_vocab())}
    for setting in ("padding_side", "truncation_side", "chat_template"):
        if hasattr(tokenizer, setting):
            described[setting] = getattr(tokenizer, setting)
    return described


def _hash_weights(model: nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=16)
    unused = tuple(_unused_poolers(model))
    for name, value in sorted(model.state_dict().items()):
        if not isinstance(value, torch.Tensor) or name.startswith(unused):
            continue
        tensor = value.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {tensor.dtype} {tuple(value.shape)}".encode())
        digest.update(tensor.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _unused_poolers(model: nn.Module) -> Iterator[str]:
    """Prefixes of transformers' own pooling layers where the model reads the last hidden state instead.

    A checkpoint often lacks this layer, and then it is filled at random anew in every process.
    """
    for name, module in model.named_modules():
        if isinstance(module, Transformer):
            text = module.modality_config.get("text") or {}
            if text.get("method_output_name") == "last_hidden_state":
                yield f"{name}.model.pooler."
