"""SimCSE's projection head: trained like any other weight, and absent from whatever is saved or evaluated."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import SENTENCES, free_port
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.losses import (
    AdaptiveLayerLoss,
    CachedMultipleNegativesRankingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from tiny_models import DIMENSION, STATIC, build_student
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training_runs import pairs, scored
from training_runs import train as run_trainer

from rankcse_st import CachedRankCSELoss, RankCSELoss
from rankcse_st.dropout import set_dropout
from rankcse_st.projection_head import (
    WEIGHTS_NAME,
    ProjectionHead,
    ProjectionHeadCallback,
    add_projection_head,
    remove_projection_head,
)


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_collect() -> Iterator[None]:
    """The trainer collects garbage at every start, which takes longer than these trainings themselves."""
    gc.freeze()
    yield
    gc.unfreeze()


PAIRS = pairs()
train = partial(run_trainer, loss=MultipleNegativesRankingLoss, dataset=PAIRS, max_steps=4)


def embed(model: nn.Module, tokenizer: SentenceTransformer) -> Tensor:
    return model(tokenizer.preprocess(SENTENCES[:4]))["sentence_embedding"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The head on the model


@pytest.mark.parametrize("family", ["bert", "qwen3", STATIC])
def test_projects_in_training_and_not_in_evaluation(family: str) -> None:
    """The head acts on the embedding itself and leaves what users and evaluators see alone."""
    model = build_student(family)
    set_dropout(model, 0.0)
    plain = embed(model.eval(), model)
    encoded = model.encode(SENTENCES[:4], convert_to_tensor=True)
    head = add_projection_head(model).head
    assert head is not None
    assert torch.equal(embed(model.eval(), model), plain)
    assert torch.equal(model.encode(SENTENCES[:4], convert_to_tensor=True), encoded)
    projected = embed(model.train(), model)
    torch.testing.assert_close(projected, torch.tanh(plain @ head.weight.T + head.bias))
    assert not torch.allclose(projected, plain)
    assert torch.equal(model.encode(SENTENCES[:4], convert_to_tensor=True), encoded)


def test_sits_before_normalisation_and_after_dense() -> None:
    """After Normalize the embedding would no longer be of length 1; before Dense it would not be the embedding."""
    dense = Dense(DIMENSION, 12, activation_function=nn.Identity())
    model = build_student("bert", modules=(dense, Normalize())).train()
    head = add_projection_head(model).head
    assert head is not None
    assert head.dimension == 12
    assert dict(model[2].named_children())["projection_head"] is head
    torch.testing.assert_close(embed(model, model).norm(dim=1), torch.ones(4))


def test_width_is_that_of_training_not_that_of_truncation() -> None:
    """``truncate_dim`` cuts what encode returns, not what the loss sees."""
    model = build_student("bert")
    model.truncate_dim = 8
    head = add_projection_head(model).head
    assert head is not None
    assert head.dimension == DIMENSION
    assert model.truncate_dim == 8
    assert embed(model.train(), model).shape == (4, DIMENSION)


@pytest.mark.parametrize(
    "modules", [(), (Normalize(),), (Dense(DIMENSION, 12),)], ids=["pooling", "normalize", "dense"]
)
def test_saved_files_are_those_of_a_model_without_it(modules: tuple[nn.Module, ...], tmp_path: Path) -> None:
    """Dense writes all its state: the head's weights must not be among them, nor its class in modules.json."""
    plain, model = (build_student("bert", modules=copy.deepcopy(modules)) for _ in range(2))
    add_projection_head(model)
    names = {name for name, _ in plain.named_parameters()}
    assert len({name for name, _ in model.named_parameters()} - names) == 2  # canary: it is there
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.save_pretrained(str(tmp_path / "without"))
    model.save_pretrained(str(tmp_path / "with"))
    assert files(tmp_path / "with") == files(tmp_path / "without")
    model.load_state_dict(model.state_dict(), strict=True)


def test_removal_leaves_no_trace() -> None:
    """Neither a parameter nor a hook stays behind, and a second removal does nothing."""
    model = build_student("bert").train()
    set_dropout(model, 0.0)
    plain = embed(model, model)
    parameters = len(list(model.parameters()))
    head = add_projection_head(model).head
    assert not torch.allclose(embed(model, model), plain)
    assert remove_projection_head(model) is head
    assert torch.equal(embed(model, model), plain)
    assert len(list(model.parameters())) == parameters
    assert remove_projection_head(model) is None
    add_projection_head(model)  # and it may come back


def test_a_second_head_is_an_error() -> None:
    """Two heads in a row would be another method, trained by accident in a notebook cell that is run twice."""
    model = build_student("bert")
    add_projection_head(model)
    with pytest.raises(ValueError, match="already"):
        add_projection_head(model)


def test_a_model_of_unknown_width_is_an_error_that_says_so() -> None:
    """A module without a width must fail before training, not with a shape error in its first step."""
    model = build_student("bert")
    model.get_embedding_dimension = lambda: None
    with pytest.raises(ValueError, match=r"width.*Pooling"):
        add_projection_head(model)


def test_seed_decides_the_weights_and_spares_the_global_random_state() -> None:
    """Two runs of one seed start from one head, and adding it does not shift the run's other random numbers."""
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    weights = []
    for seed in (7, 7, 8):
        head = add_projection_head(build_student("bert"), seed=seed).head
        assert head is not None
        weights.append(head.weight)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert weights[0].std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deep", "pickle"]
)
def test_a_copy_of_the_model_uses_its_own_head(copied: Callable[[SentenceTransformer], SentenceTransformer]) -> None:
    """A hook that closes over the head would make the copy project with the original's weights."""
    model = build_student("bert")
    set_dropout(model, 0.0)
    original = add_projection_head(model).head
    assert original is not None
    other = copied(model).train()
    with torch.no_grad():
        original.weight.zero_()
    assert embed(model.train(), model).abs().max() == 0
    assert embed(other, other).abs().max() > 0
    assert isinstance(remove_projection_head(other), ProjectionHead)
    assert embed(other, other).abs().max() > 1  # not a tanh any more


def test_takes_the_model_s_precision() -> None:
    """A model loaded in bfloat16 needs a head that takes its embeddings."""
    model = build_student("bert").to(torch.bfloat16)
    head = add_projection_head(model).head
    assert head is not None
    assert head.weight.dtype == torch.bfloat16
    assert embed(model.train(), model).dtype == torch.bfloat16


# Under the trainer


def adaptive_layers(model: SentenceTransformer) -> nn.Module:
    return AdaptiveLayerLoss(model, MultipleNegativesRankingLoss(model))


def matryoshka(model: SentenceTransformer) -> nn.Module:
    return MatryoshkaLoss(model, MultipleNegativesRankingLoss(model), matryoshka_dims=[32, 16, 8])


def matryoshka_rankcse(model: SentenceTransformer) -> nn.Module:
    return MatryoshkaLoss(model, RankCSELoss(model), matryoshka_dims=[32, 16, 8])


def cached_rankcse(model: SentenceTransformer) -> nn.Module:
    return CachedRankCSELoss(model, mini_batch_size=3)


def cached(model: SentenceTransformer) -> nn.Module:
    return CachedMultipleNegativesRankingLoss(model, mini_batch_size=3)


@pytest.mark.parametrize(
    ("loss", "dataset", "arguments"),
    [
        pytest.param(MultipleNegativesRankingLoss, PAIRS, {}, id="plain"),
        pytest.param(RankCSELoss, scored(), {}, id="rankcse"),
        pytest.param(matryoshka, PAIRS, {}, id="matryoshka"),
        pytest.param(matryoshka_rankcse, scored(), {}, id="matryoshka-rankcse"),
        pytest.param(adaptive_layers, PAIRS, {}, id="adaptive-layers"),
        pytest.param(cached, PAIRS, {}, id="cached"),
        pytest.param(cached_rankcse, scored(), {}, id="cached-rankcse"),
        pytest.param(
            MultipleNegativesRankingLoss,
            PAIRS,
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
            id="gradient-checkpointing",
        ),
        pytest.param(MultipleNegativesRankingLoss, PAIRS, {"gradient_accumulation_steps": 2}, id="accumulation"),
        pytest.param(MultipleNegativesRankingLoss, PAIRS, {"bf16": True}, id="bf16"),
        pytest.param(
            MultipleNegativesRankingLoss,
            PAIRS,
            {"torch_compile": True, "torch_compile_backend": "eager", "max_steps": 2},
            id="compile",
        ),
    ],
)
def test_learns_and_is_gone_afterwards(
    loss: Callable[[SentenceTransformer], nn.Module], dataset: Dataset, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever wraps the loss or the model, the head is trained, and nothing of it is left in what is saved."""
    model = build_student("bert")
    callback = add_projection_head(model, seed=0)
    head = callback.head
    assert head is not None
    start = head.weight.detach().clone(), head.bias.detach().clone()
    trainer = train(model, tmp_path / "run", loss=loss, dataset=dataset, callbacks=[callback], **arguments)
    assert (head.weight - start[0]).abs().max() > 1e-4
    assert (head.bias - start[1]).abs().max() > 1e-4
    assert remove_projection_head(model) is None
    trainer.save_model(str(tmp_path / "saved"))
    assert not any("projection" in name for name in files(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=False)
    for (name, expected), actual in zip(model.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(actual, expected), name


def test_cached_loss_gives_the_gradients_of_the_loss_at_once() -> None:
    """Weights inside a cached loss get their gradient at the wrong moment; inside the model they must not."""
    gradients = {}
    for make in (MultipleNegativesRankingLoss, cached):
        model = build_student("bert").train()
        set_dropout(model, 0.0)
        add_projection_head(model, seed=0)
        features = [model.preprocess(SENTENCES[:8]), model.preprocess(SENTENCES[8:16])]
        make(model)(features, None).backward()
        head = remove_projection_head(model)
        assert head is not None
        gradients[make] = head.weight.grad, head.bias.grad, model[0].auto_model.embeddings.word_embeddings.weight.grad
    for expected, actual in zip(*gradients.values(), strict=True):
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_is_clipped_with_the_rest_of_the_model(tmp_path: Path) -> None:
    """Weights inside a loss escape ``max_grad_norm``: with plain SGD the length of a step shows it."""

    def step_length(max_grad_norm: float) -> float:
        model = build_student("bert")
        callback = add_projection_head(model, seed=0)
        assert callback.head is not None
        start = callback.head.weight.detach().clone()
        arguments = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_steps": 1}
        train(model, tmp_path, callbacks=[callback], max_grad_norm=max_grad_norm, **arguments)
        return (callback.head.weight.detach() - start).norm().item()

    assert 0 < step_length(1e-3) <= 1e-3 * 1.001
    assert step_length(1e6) > 1e-2  # canary: without clipping the step is far longer


# Checkpoints


@pytest.mark.parametrize(
    ("loss", "dataset"),
    [(MultipleNegativesRankingLoss, PAIRS), (RankCSELoss, scored()), (cached_rankcse, scored())],
    ids=["simcse", "rankcse", "cached-rankcse"],
)
def test_resumed_equals_uninterrupted(
    loss: Callable[[SentenceTransformer], nn.Module], dataset: Dataset, tmp_path: Path
) -> None:
    """Bit for bit, with the optimizer: a head that starts anew, or is restored too late, changes the second half."""
    run = partial(train, loss=loss, dataset=dataset, max_steps=6, save_strategy="steps", save_steps=3)
    heads = []

    def student(seed: int) -> tuple[SentenceTransformer, ProjectionHeadCallback]:
        model = build_student("bert", seed=seed)
        callback = add_projection_head(model, seed=seed)
        assert callback.head is not None
        heads.append(callback.head)
        return model, callback

    whole, callback = student(0)
    run(whole, tmp_path / "whole", callbacks=[callback])
    # The same run, broken off after the first checkpoint; the second process starts from other random weights.
    shutil.copytree(tmp_path / "whole" / "checkpoint-3", tmp_path / "half" / "checkpoint-3")
    half, callback = student(1)
    run(half, tmp_path / "half", callbacks=[callback], resume=str(tmp_path / "half" / "checkpoint-3"))

    assert torch.equal(heads[0].weight, heads[1].weight)
    assert torch.equal(heads[0].bias, heads[1].bias)
    for (name, expected), actual in zip(whole.state_dict().items(), half.state_dict().values(), strict=True):
        assert torch.equal(expected, actual), name
    optimizers = [
        torch.load(tmp_path / run / "checkpoint-6" / "optimizer.pt", weights_only=True)["state"]
        for run in ("whole", "half")
    ]
    assert len(optimizers[0]) == len(list(whole.parameters())) + 2 - unused_parameters(optimizers[0], whole)
    for expected, actual in zip(*(state.values() for state in optimizers), strict=True):
        assert torch.equal(expected["exp_avg"], actual["exp_avg"])
        assert torch.equal(expected["exp_avg_sq"], actual["exp_avg_sq"])
    # Canary: the second half changed the head, and a fresh head would not have ended there.
    halfway = safetensors.torch.load_file(tmp_path / "whole" / "checkpoint-3" / WEIGHTS_NAME)
    assert not torch.equal(halfway["weight"], heads[0].weight)
    fresh = build_student("bert", seed=1)
    head = add_projection_head(fresh, seed=1).head
    assert head is not None
    assert not torch.equal(head.weight, halfway["weight"])


def unused_parameters(state: dict[int, Any], model: SentenceTransformer) -> int:
    """BERT's pooler, which no gradient reaches."""
    return sum("pooler" in name for name, _ in model.named_parameters())


def test_checkpoints_are_plain_models(tmp_path: Path) -> None:
    """A checkpoint must load as it is: ST refuses foreign module classes without ``trust_remote_code``."""
    model = build_student("bert")
    train(model, tmp_path, callbacks=[add_projection_head(model)], save_strategy="steps", save_steps=4)
    checkpoint = tmp_path / "checkpoint-4"
    assert (checkpoint / WEIGHTS_NAME).is_file()
    modules = json.loads((checkpoint / "modules.json").read_text())
    assert [module["type"].split(".")[0] for module in modules] == ["sentence_transformers"] * 2
    assert not any("projection" in name for name in safetensors.torch.load_file(checkpoint / "model.safetensors"))
    assert "projection" not in (checkpoint / "README.md").read_text().lower()
    loaded = SentenceTransformer(str(checkpoint), device="cpu", trust_remote_code=False)
    assert torch.equal(
        loaded.encode(SENTENCES[:4], convert_to_tensor=True), model.encode(SENTENCES[:4], convert_to_tensor=True)
    )


class CountDown(BaseEvaluator):
    """An evaluator for which the first checkpoint is the best, and which records what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.primary_metric = "count_down"
        self.seen: list[Tensor] = []

    def __call__(self, model: SentenceTransformer, *args: Any, **kwargs: Any) -> dict[str, float]:
        self.seen.append(model.encode(SENTENCES[:4], convert_to_tensor=True))
        return {"count_down": -float(len(self.seen))}


def test_the_best_checkpoint_is_loaded_at_the_end(tmp_path: Path) -> None:
    """Loading the best checkpoint is a strict load into a model that still has the head."""
    model = build_student("bert")
    evaluator = CountDown()
    trainer = train(
        model,
        tmp_path,
        callbacks=[add_projection_head(model)],
        evaluator=evaluator,
        save_strategy="steps",
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_count_down",
        greater_is_better=True,
    )
    assert trainer.state.best_model_checkpoint is not None
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    final = model.encode(SENTENCES[:4], convert_to_tensor=True)
    assert torch.equal(final, evaluator.seen[0])
    assert not torch.equal(evaluator.seen[1], evaluator.seen[0])
    assert remove_projection_head(model) is None


def resumable(folder: Path, seed: int = 0) -> Path:
    """A run of two steps with a head and a checkpoint at its end."""
    model = build_student("bert", seed=seed)
    train(
        model,
        folder,
        callbacks=[add_projection_head(model, seed=seed)],
        max_steps=2,
        save_strategy="steps",
        save_steps=2,
    )
    return folder / "checkpoint-2"


def test_a_checkpoint_elsewhere_is_found_when_it_is_named(tmp_path: Path) -> None:
    """Resuming into a new output folder: the head must come from the checkpoint, or the run must not start."""
    checkpoint = resumable(tmp_path / "old")
    saved = safetensors.torch.load_file(checkpoint / WEIGHTS_NAME)["weight"]
    # A checkpoint of the same number, of another run, lies where the trainer writes.
    resumable(tmp_path / "new", seed=3)
    model = build_student("bert")
    callback = add_projection_head(model)
    with pytest.raises(FileNotFoundError, match=r"projection_head\.safetensors .* resume_from_checkpoint="):
        train(model, tmp_path / "new", callbacks=[callback], resume=str(checkpoint))
    model = build_student("bert")
    callback = add_projection_head(model, resume_from_checkpoint=checkpoint)
    # No step is left to train, so that the head is as it was restored.
    train(model, tmp_path / "new", callbacks=[callback], resume=str(checkpoint), max_steps=2)
    assert callback.head is not None
    assert torch.equal(callback.head.weight, saved)


def test_a_checkpoint_without_the_head_s_weights_is_an_error(tmp_path: Path) -> None:
    """A head that starts anew in the middle of a run would spoil it silently."""
    checkpoint = resumable(tmp_path)
    (checkpoint / WEIGHTS_NAME).unlink()
    model = build_student("bert")
    with pytest.raises(FileNotFoundError, match="belongs to the checkpoint at step 2"):
        train(model, tmp_path, callbacks=[add_projection_head(model)], resume=str(checkpoint))


def test_a_checkpoint_of_a_run_without_the_callback_is_an_error(tmp_path: Path) -> None:
    """Its head was never saved; the optimizer's state alone fits, so that nothing else would complain."""
    model = build_student("bert")
    add_projection_head(model)
    train(model, tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    model = build_student("bert")
    with pytest.raises(ValueError, match="saved without a projection head"):
        train(model, tmp_path, callbacks=[add_projection_head(model)], resume=str(tmp_path / "checkpoint-2"))


def test_callback_states_may_be_restored_from_the_checkpoint(tmp_path: Path) -> None:
    """The trainer then replaces the callback by one that it makes from ``trainer_state.json``, which has no head."""
    checkpoint = resumable(tmp_path)
    saved = safetensors.torch.load_file(checkpoint / WEIGHTS_NAME)["weight"]
    model = build_student("bert")
    head = add_projection_head(model, seed=9)
    train(
        model,
        tmp_path,
        callbacks=[head],
        resume=str(checkpoint),
        max_steps=3,
        learning_rate=0.0,
        restore_callback_states_from_checkpoint=True,
    )
    assert head.head is not None
    assert torch.equal(head.head.weight, saved)
    assert remove_projection_head(model) is None


def test_training_again_without_a_new_head_is_an_error(tmp_path: Path) -> None:
    """The head is gone after the first training: the second must not silently train without one."""
    model = build_student("bert")
    trainer = train(model, tmp_path, callbacks=[add_projection_head(model)], max_steps=1)
    with pytest.raises(ValueError, match="add_projection_head"):
        trainer.train()
    trainer.pop_callback(ProjectionHeadCallback)
    trainer.add_callback(add_projection_head(model))
    trainer.train()
    assert remove_projection_head(model) is None


# Processes

PROCESSES = 2


def gradients(
    model: SentenceTransformer, make: Callable[[Any], nn.Module], rank: int, *, wrap: bool
) -> dict[str, Tensor]:
    """The head's gradients on one process's share of the data."""
    set_dropout(model.train(), 0.0)
    # The weights of rank 0 are what counts: DDP sends them to the others.
    head = add_projection_head(model, seed=rank if wrap else 0).head
    assert head is not None
    loss = make(model)
    if wrap:
        loss.model = DistributedDataParallel(model)
    features = [model.preprocess(SENTENCES[start + 8 * rank : start + 8 * rank + 8]) for start in (0, 16)]
    loss(features, None).backward()
    return {name: parameter.grad.clone() for name, parameter in head.named_parameters()}


def worker(rank: int, folder: str, environment: dict[str, str]) -> None:
    """One of two gloo processes."""
    torch.set_num_threads(1)
    models = [build_student("distilbert") for _ in range(3)]  # before the group: afterwards rank 0 alone writes models
    os.environ |= environment | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(PROCESSES)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES)
    results: dict[str, Any] = {
        "plain": gradients(models[0], MultipleNegativesRankingLoss, rank, wrap=True),
        "cached": gradients(models[1], cached, rank, wrap=True),
    }
    written: list[str] = []
    write_bytes = Path.write_bytes

    def recorded(self: Path, content: bytes) -> int:
        written.append(self.name)
        return write_bytes(self, content)

    Path.write_bytes = recorded  # type: ignore[method-assign]
    model = models[2]
    callback = add_projection_head(model, seed=rank)
    assert callback.head is not None
    train(
        model,
        Path(folder, "run"),
        callbacks=[callback],
        ddp_backend="gloo",
        max_steps=2,
        save_strategy="steps",
        save_steps=2,
    )
    results |= {
        "weight": callback.head.weight.detach(),
        "embeddings": model.encode(SENTENCES[:4], convert_to_tensor=True),
        "written": written,
        "left": remove_projection_head(model) is not None,
    }
    torch.save(results, Path(folder, f"{rank}.pt"))
    dist.destroy_process_group()


@pytest.mark.slow
def test_is_synchronised_between_processes(tmp_path: Path) -> None:
    """Weights inside a loss drift apart under DDP: each process would train a head, and so a model, of its own."""
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1"}
    mp.spawn(worker, args=(str(tmp_path), environment), nprocs=PROCESSES)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(PROCESSES))
    for name, make in (("plain", MultipleNegativesRankingLoss), ("cached", cached)):
        alone = [gradients(build_student("distilbert"), make, rank, wrap=False) for rank in range(PROCESSES)]
        for parameter, gradient in first[name].items():
            assert torch.equal(gradient, second[name][parameter])
            mean = torch.stack([single[parameter] for single in alone]).mean(dim=0)
            torch.testing.assert_close(gradient, mean, rtol=1e-4, atol=1e-6)
            # Canary: the processes have different data.
            assert not torch.allclose(alone[0][parameter], alone[1][parameter], rtol=1e-2, atol=1e-5)
    assert torch.equal(first["weight"], second["weight"])
    assert torch.equal(first["embeddings"], second["embeddings"])
    assert first["written"] == [f"{WEIGHTS_NAME}.partial"]  # Renamed when it is whole.
    assert second["written"] == []
    assert not first["left"]
    assert not second["left"]
    saved = safetensors.torch.load_file(tmp_path / "run" / "checkpoint-2" / WEIGHTS_NAME)
    assert torch.equal(saved["weight"], first["weight"])
