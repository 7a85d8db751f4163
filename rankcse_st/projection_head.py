"""The train-only projection head of SimCSE: on top of the embedding while the model trains, gone from what is saved.

The head is a child of the model's last module, which a forward hook applies, and not a module of the pipeline: what is
saved is then always a plain Sentence Transformers model, the checkpoints included, which load without this package and
without ``trust_remote_code``. For the same reason it shows in no ``state_dict()``. As its weights are among
``model.parameters()``, the trainer optimises and clips them and DDP synchronises them, like any other.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from rankcse_st.student import embedding_width

__all__ = ["ProjectionHead", "ProjectionHeadCallback", "add_projection_head", "remove_projection_head"]

WEIGHTS_NAME = "projection_head.safetensors"
_CHILD = "projection_head"


class ProjectionHead(nn.Module):
    """``tanh(W x + b)`` in training mode, ``x`` in evaluation mode. Use :func:`add_projection_head` to make one.

    Args:
        dimension: Width d of the embedding; W is (d, d).
        initializer_range: Standard deviation of W's entries at the start; b starts at 0.
    """

    def __init__(self, dimension: int, initializer_range: float = 0.02) -> None:
        super().__init__()
        self.dimension = dimension
        self.weight = nn.Parameter(torch.empty(dimension, dimension).normal_(0.0, initializer_range))
        self.bias = nn.Parameter(torch.zeros(dimension))
        self.hook: RemovableHandle | None = None

    def forward(self, embedding: Tensor) -> Tensor:
        """Project an embedding of shape (B, d)."""
        if not self.training:
            return embedding
        return torch.tanh(nn.functional.linear(embedding.to(self.weight.dtype), self.weight, self.bias))

    def extra_repr(self) -> str:
        return f"dimension={self.dimension}"

    def to_bytes(self) -> bytes:
        """The weights as the content of a safetensors file; equal weights give equal bytes."""
        return safetensors.torch.save(
            {name: parameter.detach().cpu().contiguous() for name, parameter in self.named_parameters()}
        )

    def from_bytes(self, content: bytes) -> None:
        """Take over weights from :meth:`to_bytes`, in place."""
        tensors = safetensors.torch.load(content)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(tensors[name])

    # The two methods by which torch lets a module say what it adds to a state dict, and takes from one: nothing, so
    # that neither the weight file of the module that carries the head nor a strict load of a checkpoint knows of it.
    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None: ...

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None: ...


def add_projection_head(
    model: SentenceTransformer,
    *,
    initializer_range: float = 0.02,
    seed: int | None = None,
    resume_from_checkpoint: str | os.PathLike[str] | None = None,
) -> ProjectionHeadCallback:
    """Put SimCSE's projection head on a model, for training only.

    In training mode the sentence embedding becomes ``tanh(W x + b)``; in evaluation mode (``encode``, evaluators,
    ``eval_dataset``) it is ``x``, as it will be in the saved model. The head sits after the last module that is not
    ``Normalize``. Any loss may be used, wrapped (``MatryoshkaLoss``, ``AdaptiveLayerLoss``) or cached, on one process
    or several (DDP; not FSDP or DeepSpeed ZeRO-3, which split the weights).

    Args:
        model: The student. Call this before the trainer is made, and before ``torch.compile``.
        initializer_range: Standard deviation of W's entries at the start. SimCSE's is BERT's, 0.02.
        seed: Of W. None draws from torch's global random state.
        resume_from_checkpoint: Only for resuming from a checkpoint that is not in the trainer's ``output_dir``: its
            folder, the same that ``trainer.train`` is given.

    Returns:
        The callback that the trainer needs: it keeps the head's weights in the checkpoints, so that a resumed run
        continues exactly, and takes the head off when training ends.

    Raises:
        ValueError: If the model has a projection head already, or its embedding's dimension is not known.

    References:
        - SimCSE: Simple Contrastive Learning of Sentence Embeddings, https://aclanthology.org/2021.emnlp-main.552/

    Example:
        ::

            model = SentenceTransformer("bert-base-uncased")
            trainer = SentenceTransformerTrainer(
                model=model,
                train_dataset=train_dataset,
                loss=RankCSELoss(model),
                callbacks=[add_projection_head(model)],
            )
            trainer.train()
            model.save_pretrained("student")  # no trace of the head

        In a training loop of your own, ``remove_projection_head(model)`` takes it off.
    """
    if _find(model) is not None:
        raise ValueError("The model has a projection head already: remove_projection_head(model) takes it off.")
    host = next((module for module in reversed(list(model.children())) if not isinstance(module, Normalize)), None)
    dimension = embedding_width(model)
    if host is None or dimension is None:
        raise ValueError(
            "Expected a model whose get_embedding_dimension() tells the width of its embedding, but got "
            f"{dimension} from the modules {[type(module).__name__ for module in model.children()]}."
        )
    like = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        head = ProjectionHead(dimension, initializer_range)
    host.add_module(_CHILD, head.to(device=model.device, dtype=like.dtype).train(host.training))
    head.hook = host.register_forward_hook(_project)
    return ProjectionHeadCallback(head, resume_from_checkpoint=resume_from_checkpoint)


def remove_projection_head(model: nn.Module) -> ProjectionHead | None:
    """Take the projection head off a model; does nothing where there is none.

    Args:
        model: The model, also wrapped (compiled, DDP).

    Returns:
        The head, or None.
    """
    found = _find(model)
    if found is None:
        return None
    host, head = found
    if head.hook is not None:
        head.hook.remove()
        head.hook = None
    delattr(host, _CHILD)
    return head


class ProjectionHeadCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Saves a projection head with each checkpoint, restores it on resume, and takes it off when training ends.

    Made by :func:`add_projection_head`. Each checkpoint gets a file ``projection_head.safetensors``, written by the
    process that writes the checkpoint; ``trainer_state.json`` records its digest, so that no other run's head is ever
    restored. The head is taken off after ``load_best_model_at_end`` has done its work.

    Args:
        head: The head.
        resume_from_checkpoint: Folder of the checkpoint to resume from, where it is not in the ``output_dir``.
    """

    def __init__(
        self,
        head: ProjectionHead | None = None,
        resume_from_checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.head = head
        self.resume_from_checkpoint = resume_from_checkpoint

    def state(self) -> dict[str, Any]:
        """What ``trainer_state.json`` keeps of this callback: the digest of the weights, not the weights."""
        digest = None if self.head is None else hashlib.sha256(self.head.to_bytes()).hexdigest()
        return {"args": {}, "attributes": {"sha256": digest}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        found = _find(kwargs["model"])
        if found is None:
            raise ValueError(
                "ProjectionHeadCallback found no projection head in the model. It is taken off when training ends: "
                "call add_projection_head(model) before each training, and give its callback to the trainer."
            )
        if getattr(args, "fsdp", None):
            raise ValueError("The projection head does not work under FSDP, which splits its weights: use DDP.")
        self.head = found[1]
        if state.global_step > 0:
            self.head.from_bytes(self._read_checkpoint(args, state))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        # A folder of another name is a trial of a hyperparameter search, which nobody resumes.
        if args.should_save and self.head is not None and folder.is_dir():
            # By a rename, so that a file that is there is whole: a checkpoint without one is passed over by resuming.
            partial = folder / f"{WEIGHTS_NAME}.partial"
            partial.write_bytes(self.head.to_bytes())
            partial.replace(folder / WEIGHTS_NAME)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        remove_projection_head(kwargs["model"])

    def _read_checkpoint(self, args: Any, state: Any) -> bytes:
        """The weights that belong to the checkpoint whose state the trainer has just loaded.

        The trainer does not tell callbacks which folder that was: the digest in its state says which file is right.
        """
        saved = state.stateful_callbacks.get(type(self).__name__)
        if saved is None:
            raise ValueError(
                "The checkpoint to resume from was saved without a projection head: resume without one, or start anew."
            )
        folders = [self.resume_from_checkpoint, args.resume_from_checkpoint]
        folders.append(Path(args.output_dir, f"checkpoint-{state.global_step}"))
        files = [Path(folder, WEIGHTS_NAME) for folder in folders if isinstance(folder, (str, os.PathLike))]
        for file in files:
            if file.is_file():
                content = file.read_bytes()
                if hashlib.sha256(content).hexdigest() == saved["attributes"]["sha256"]:
                    return content
        raise FileNotFoundError(
            f"Found no {WEIGHTS_NAME} that belongs to the checkpoint at step {state.global_step}; looked at "
            f"{[str(file) for file in files]}. If the checkpoint is elsewhere, pass its folder to "
            "add_projection_head(model, resume_from_checkpoint=...) as well as to trainer.train."
        )


def _project(host: nn.Module, inputs: Any, features: dict[str, Any]) -> dict[str, Any]:
    """Forward hook. It finds the head by name, so that copies and replicas of a model use their own."""
    head = cast(ProjectionHead, host.get_submodule(_CHILD))
    features["sentence_embedding"] = head(features["sentence_embedding"])
    return features


def _find(model: nn.Module) -> tuple[nn.Module, ProjectionHead] | None:
    for module in model.modules():
        for child in module.children():
            if isinstance(child, ProjectionHead):
                return module, child
    return None
