"""Every architecture and every training option that people combine with the losses, through the real trainer."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SENTENCES
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tiny_models import STATIC, STUDENTS, TRANSFORMERS, build_student
from torch import Tensor, nn
from training_runs import LABEL_WIDTH, logged, pairs, score_vectors, scored, train

from rankcse_st import ListwiseDistillationLoss, RankCSELoss
from rankcse_st.dropout import get_dropout, set_dropout
from rankcse_st.evaluation import TeacherAgreementEvaluator
from rankcse_st.views import embed_views

PARTS = ("contrastive", "consistency", "distillation")

distillation_alone = partial(RankCSELoss, contrastive_weight=0.0, consistency_weight=0.0)


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_collect() -> Iterator[None]:
    """The trainer collects garbage at every start, which takes longer than these trainings themselves."""
    gc.freeze()
    yield
    gc.unfreeze()


def student(family: str = "bert", p: float = 0.1) -> SentenceTransformer:
    model = build_student(family)
    if family != STATIC:
        set_dropout(model, p)
    return model


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def unmoved(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    """Parameters that training left as they were; BERT's pooler, which no embedding passes through, is not meant."""
    return {
        name for name, value in weights(model).items() if torch.equal(value, before[name]) and ".pooler." not in name
    }


def encode(model: SentenceTransformer) -> Tensor:
    return model.encode(SENTENCES, convert_to_tensor=True)


def record_calls(loss: nn.Module) -> list[tuple[list[dict[str, Any]], Tensor | None]]:
    """The features and labels of every call of a loss, as they were before the model wrote into them."""
    calls: list[tuple[list[dict[str, Any]], Tensor | None]] = []

    def record(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        features, labels = arguments
        calls.append(([dict(column) for column in features], labels))

    loss.register_forward_pre_hook(record)
    return calls


# Architectures


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_two_views_differ_in_training_and_coincide_in_evaluation(family: str) -> None:
    """Copies of a row in one batch must not share a mask, and evaluation must be free of noise."""
    model = student(family)
    first, second = embed_views(model.train(), [model.preprocess(SENTENCES[:4])], views=2)
    assert not any(torch.allclose(one, other, rtol=1e-3) for one, other in zip(first, second, strict=True))
    first, second = embed_views(model.eval(), [model.preprocess(SENTENCES[:4])], views=2)
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("family", STUDENTS)
def test_trains_evaluates_and_reloads(family: str, tmp_path: Path) -> None:
    """All of its weights learn, each term is logged, and the result is an ordinary model that reloads as it was."""
    model = student(family)
    before = weights(model)
    static = family == STATIC
    trainer = train(
        model,
        tmp_path / "run",
        distillation_alone if static else RankCSELoss,
        scored(),
        eval_dataset=scored(slice(0, 16)),
        eval_strategy="steps",
        eval_steps=3,
    )
    assert unmoved(model, before) == set()
    for part in ("distillation",) if static else PARTS:
        assert len(logged(trainer, part)) == 3
        assert all(value > 0 for value in logged(trainer, part))
    assert logged(trainer, "eval_loss")[0] > 0
    if not static:
        # In evaluation the two views are one.
        assert logged(trainer, "eval_consistency") == [0.0]
        assert logged(trainer, "eval_distillation")[0] > 0
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert torch.equal(encode(loaded), encode(model))
    # Canary: without a learning rate nothing moves.
    still = student(family)
    before = weights(still)
    train(still, tmp_path / "still", distillation_alone, scored(), learning_rate=0.0, max_steps=1)
    assert unmoved(still, before) == {name for name in before if ".pooler." not in name}


@pytest.mark.parametrize("family", STUDENTS)
def test_a_student_without_dropout_is_an_error_that_says_what_to_do(family: str, tmp_path: Path) -> None:
    """Equal views train nothing, and a contrastive loss that falls to nothing looks like success."""
    model = student(family, p=0.0)
    with pytest.raises(ValueError, match=r"views .* are equal.*set_dropout\(model, 0\.1\).*StaticEmbedding"):
        train(model, tmp_path, RankCSELoss, scored())


# Options of the trainer


def test_bf16_autocast(tmp_path: Path) -> None:
    """Similarities must be made in float32 from embeddings in bfloat16, and the weights stay float32."""
    losses = {}
    for bf16 in (True, False):
        model = student()
        seen: list[torch.dtype] = []
        dense = model[0].auto_model.encoder.layer[0].output.dense
        hook = dense.register_forward_hook(lambda m, i, out, seen=seen: seen.append(out.dtype))
        before = weights(model)
        trainer = train(model, tmp_path, RankCSELoss, scored(), bf16=bf16)
        hook.remove()
        assert set(seen) == {torch.bfloat16 if bf16 else torch.float32}
        assert unmoved(model, before) == set()
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        losses[bf16] = logged(trainer, "loss")
    assert losses[True] == pytest.approx(losses[False], rel=0.05)
    assert losses[True] != losses[False]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing_but_memory(use_reentrant: bool, tmp_path: Path) -> None:
    """The second pass must redraw the masks of the first, or its gradients are those of other views."""
    results, calls = [], []
    for checkpointing in (False, True):
        model = student()
        count: list[int] = []
        dense = model[0].auto_model.encoder.layer[0].output.dense
        dense.register_forward_hook(lambda m, i, o, count=count: count.append(1))
        arguments: dict[str, Any] = {}
        if checkpointing:
            arguments = {
                "gradient_checkpointing": True,
                "gradient_checkpointing_kwargs": {"use_reentrant": use_reentrant},
            }
        train(model, tmp_path, RankCSELoss, scored(), **arguments)
        results.append(weights(model))
        calls.append(len(count))
    assert calls[1] == 2 * calls[0] > 0  # canary: the layers were computed again
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_gradient_accumulation_is_the_mean_over_its_batches(tmp_path: Path) -> None:
    """Parts, or a loss that is already divided, would make a step of two batches another step."""
    model = student(p=0.0)
    by_hand = copy.deepcopy(model)
    loss = ListwiseDistillationLoss(model)
    calls = record_calls(loss)
    arguments = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
    train(model, tmp_path, loss, scored(), max_steps=1, gradient_accumulation_steps=2, **arguments)
    assert len(calls) == 2
    assert not torch.equal(calls[0][1], calls[1][1])
    optimizer = torch.optim.SGD(by_hand.train().parameters(), lr=0.1)
    loss = ListwiseDistillationLoss(by_hand)
    for features, labels in calls:
        (loss(features, labels) / 2).backward()
    before = weights(by_hand)
    optimizer.step()
    assert unmoved(by_hand, before) == set()
    torch.testing.assert_close(weights(model), weights(by_hand))


def test_lora(tmp_path: Path) -> None:
    """Only the adapter learns; its dropout takes part in the views."""
    peft = pytest.importorskip("peft")
    model = build_student("qwen3")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    peft.inject_adapter_in_model(config, model[0].auto_model)
    set_dropout(model, 0.1)
    assert any("lora_dropout" in name for name in get_dropout(model))
    before = weights(model)
    trainer = train(model, tmp_path, RankCSELoss, scored())
    assert unmoved(model, before) == {name for name in before if "lora" not in name}
    assert all(value > 0 for part in PARTS for value in logged(trainer, part))


def test_lora_merged_is_an_ordinary_model(tmp_path: Path) -> None:
    """A PEFT model in the place of the backbone is trained, merged, and saved without a trace of the adapter."""
    peft = pytest.importorskip("peft")
    model = build_student("bert")
    config = peft.LoraConfig(r=4, target_modules=["query", "value"])
    model[0].model = peft.get_peft_model(model[0].model, config)
    set_dropout(model, 0.1)
    assert any("lora_dropout" in name for name in get_dropout(model))
    before = encode(model)
    train(model, tmp_path / "run", RankCSELoss, scored())
    trained = encode(model)
    assert not torch.allclose(trained, before, rtol=1e-3)
    model[0].model = model[0].model.merge_and_unload()
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    torch.testing.assert_close(encode(loaded), trained, rtol=1e-4, atol=1e-5)
    assert not any("lora" in name for name in get_dropout(loaded))


def test_lora_by_add_adapter_is_saved_and_loaded(tmp_path: Path) -> None:
    """By ST's own ``add_adapter``: the folder holds the adapter alone, with the dropout it was made with."""
    peft = pytest.importorskip("peft")
    build_student("bert").save_pretrained(str(tmp_path / "base"))
    model = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    try:
        model.add_adapter(peft.LoraConfig(r=4, target_modules=["query", "value"], init_lora_weights=False))
    except (ImportError, ValueError) as error:
        pytest.skip(f"transformers and peft do not fit together here: {error}")
    model.save_pretrained(str(tmp_path / "untrained"))
    if not torch.allclose(encode(SentenceTransformer(str(tmp_path / "untrained"), device="cpu")), encode(model)):
        pytest.skip("transformers and peft do not fit together here: an adapter is not loaded as it was saved")
    set_dropout(model, 0.2)
    before = encode(model)
    train(model, tmp_path / "run", RankCSELoss, scored())
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    torch.testing.assert_close(encode(loaded), encode(model))
    assert not torch.allclose(encode(loaded), before, rtol=1e-3)
    assert {p for name, p in get_dropout(loaded).items() if "lora_dropout" in name} == {0.0}


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_torch_compile(backend: str, tmp_path: Path) -> None:
    """The trainer puts the compiled model in the place of ``loss.model``: views, parts and gradients as before."""
    torch.compiler.reset()
    model = student()
    before = weights(model)
    loss = RankCSELoss(model)
    trainer = train(model, tmp_path, loss, scored(), max_steps=2, torch_compile=True, torch_compile_backend=backend)
    assert loss.model is not model
    assert type(loss.model).__name__ == "OptimizedModule"
    assert unmoved(model, before) == set()
    assert all(value > 0 for part in PARTS for value in logged(trainer, part))


def test_a_dict_of_datasets_with_a_dict_of_losses(tmp_path: Path) -> None:
    """Each dataset goes to its loss, with its own label width or none."""
    model = student()
    losses = {
        "scored": RankCSELoss(model),
        "wide": ListwiseDistillationLoss(model),
        "pairs": MultipleNegativesRankingLoss(model),
    }
    calls = {name: record_calls(loss) for name, loss in losses.items()}
    datasets = {"scored": scored(), "wide": scored(width=20), "pairs": pairs()}
    trainer = train(model, tmp_path, losses, datasets, max_steps=12, multi_dataset_batch_sampler="round_robin")
    assert {name: len(recorded) for name, recorded in calls.items()} == {"scored": 4, "wide": 4, "pairs": 4}
    assert {labels.shape[1] for _, labels in calls["scored"]} == {LABEL_WIDTH}
    assert {labels.shape[1] for _, labels in calls["wide"]} == {20}
    assert {len(features) for features, _ in calls["pairs"]} == {2}
    assert any(value > 0 for value in logged(trainer, "consistency"))


def test_an_iterable_dataset(tmp_path: Path) -> None:
    """A stream has no length and no columns to be checked; its labels come as lists."""
    model = student()
    before = weights(model)
    loss = RankCSELoss(model)
    calls = record_calls(loss)
    # Older versions of accelerate can only dispatch batches of nothing but tensors, which ST's are not.
    arguments = {"accelerator_config": {"dispatch_batches": False}}
    trainer = train(model, tmp_path, loss, scored().to_iterable_dataset(), **arguments)
    assert unmoved(model, before) == set()
    assert all(value > 0 for part in PARTS for value in logged(trainer, part))
    # In the stream's order, each sentence with its own label.
    torch.testing.assert_close(calls[0][1], score_vectors()[:8])


@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts(include_prompt: bool, tmp_path: Path) -> None:
    """``prompt_length`` is one number for the batch: stacking it with the rows of two views would break pooling."""
    model = student()
    model[1].include_prompt = include_prompt
    loss = RankCSELoss(model)
    calls = record_calls(loss)
    trainer = train(model, tmp_path, loss, scored(), prompts={"sentence": "the old cat "})
    prompt = model.preprocess(["the old cat"])["input_ids"][0, :-1]
    for features, _ in calls:
        assert torch.equal(features[0]["input_ids"][:, : len(prompt)], prompt.expand(8, -1))
        assert "prompt_length" in features[0]
    assert all(value > 0 for part in PARTS for value in logged(trainer, part))


def test_the_best_model_by_teacher_agreement_is_loaded_at_the_end(tmp_path: Path) -> None:
    """The evaluator's metric, by the name that the trainer gives it, decides which checkpoint is kept."""
    model = student()
    evaluator = TeacherAgreementEvaluator(SENTENCES, score_vectors(), name="held-out")
    trainer = train(
        model,
        tmp_path,
        distillation_alone,
        scored(),
        evaluator=evaluator,
        max_steps=6,
        learning_rate=3e-2,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model=evaluator.primary_metric,
    )
    values = logged(trainer, f"eval_{evaluator.primary_metric}")
    assert len(set(values)) == 3
    best = 2 * (values.index(max(values)) + 1)
    assert trainer.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{best}")
    assert evaluator(model)[evaluator.primary_metric] == max(values)
    saved = SentenceTransformer(trainer.state.best_model_checkpoint, device="cpu")
    assert torch.equal(encode(saved), encode(model))


@pytest.mark.parametrize("loss", [RankCSELoss, distillation_alone], ids=["rankcse", "distillation"])
def test_a_last_batch_of_one_row_adds_nothing(loss: Any, tmp_path: Path) -> None:
    """One sentence has no list to rank: 0, not NaN, which would spoil every weight in the epoch's last step."""
    model = student()
    arguments = {"optim": "sgd", "max_steps": -1, "num_train_epochs": 1}
    trainer = train(model, tmp_path, loss, scored(slice(0, 9)), **arguments)
    values = logged(trainer, "loss")
    assert len(values) == 2
    assert values[0] > 0
    assert values[1] == 0
    assert logged(trainer, "grad_norm")[1] == 0
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_eval_dataset_measures_distillation_without_noise(tmp_path: Path) -> None:
    """What is logged as ``eval_distillation`` is the term on the embeddings that users get."""
    model = student()
    trainer = train(
        model,
        tmp_path,
        RankCSELoss,
        scored(),
        eval_dataset={"a": scored(slice(0, 16)), "b": scored(slice(16, 32))},
        eval_strategy="steps",
        eval_steps=3,
        per_device_eval_batch_size=16,
    )
    loss = RankCSELoss(model)
    logs = {name: logged(trainer, f"eval_{name}_loss") for name in ("a", "b")}
    for name, rows in (("a", slice(0, 16)), ("b", slice(16, 32))):
        embeddings = model.encode(SENTENCES[rows], convert_to_tensor=True)
        expected = loss.compute_loss_from_embeddings([embeddings, embeddings], score_vectors()[rows])
        assert expected["consistency"] == 0
        assert logs[name] == pytest.approx([sum(expected.values()).item()], abs=1e-3)
    assert logs["a"] != logs["b"]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_mixed_precision_on_cuda(precision: str, tmp_path: Path) -> None:
    """Under GradScaler a part that overflows in half precision would make it skip every step."""
    model = student().to("cuda")
    before = weights(model)
    trainer = train(model, tmp_path, RankCSELoss, scored(), use_cpu=False, **{precision: True})
    assert unmoved(model, before) == set()
    assert all(value > 0 for part in PARTS for value in logged(trainer, part))
