"""The cached loss against the plain one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from conftest import SENTENCES, build_tokenizer
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch.nn.functional import normalize

from rankcse_st import CachedRankCSELoss, RankCSELoss
from rankcse_st.losses import in_batch, rows
from rankcse_st.losses.cached_rankcse import Batch

TEXTS = [*SENTENCES[:20], SENTENCES[0]]  # One text occurs twice.


def vectors(count: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return normalize(torch.randn(count, *shape, generator=generator), dim=-1)


def parts_and_gradients(model: SentenceTransformer, loss: torch.nn.Module, columns: list[list[str]], labels):
    model.zero_grad()
    torch.manual_seed(0)
    parts = loss([dict(model.preprocess(column)) for column in columns], labels)
    torch.stack(list(parts.values())).sum().backward()
    return parts, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("mini_batch_size", [4, 64])
@pytest.mark.parametrize(
    ("columns", "labels", "options"),
    [
        ([TEXTS], vectors(21, 48), {}),
        ([TEXTS], vectors(21, 48), {"method": "listmle", "consistency_weight": 0.5}),
        ([TEXTS], vectors(21, 48), {"contrastive_weight": 0, "consistency_weight": 0}),
        ([TEXTS], vectors(21, 32), {"matching_weight": 3.0}),
        ([TEXTS, TEXTS[::-1], TEXTS[5:] + TEXTS[:5]], vectors(21, 3, 48), {}),
        ([TEXTS, TEXTS[::-1], TEXTS[5:] + TEXTS[:5]], torch.rand(21, 2), {"in_batch_terms": True}),
    ],
    ids=["sentences", "listmle", "distillation", "matching", "hard negatives", "explicit"],
)
def test_equals_the_plain_loss(make_tiny_model, monkeypatch, columns, labels, options, mini_batch_size) -> None:
    """Prevents a cached loss whose value or gradients are not those of the loss that it stands for.

    Rows are taken one or two at a time, so that sums over ranges of rows are exercised as well.
    """
    monkeypatch.setattr(rows, "CPU_ELEMENTS", 43)
    model = make_tiny_model(dropout=0.0).train()
    plain = RankCSELoss(model, **options)
    cached = CachedRankCSELoss(model, mini_batch_size=mini_batch_size, **options)
    for loss in (plain, cached):  # Without dropout the two views of one column are equal.
        monkeypatch.setattr(loss, "_check_views_differ", lambda embeddings: None)
    expected_parts, expected = parts_and_gradients(model, plain, columns, labels)
    parts, gradients = parts_and_gradients(model, cached, columns, labels)
    assert parts.keys() == expected_parts.keys()
    for name, value in parts.items():
        torch.testing.assert_close(value, expected_parts[name], rtol=1e-5, atol=1e-6)
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-2  # Canary: there is something to compare.
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)


def test_half_precision_is_ranked_in_single(tiny_model) -> None:
    """A student in bfloat16 whose similarities are rounded to steps of 0.004, which the plain loss's are not."""
    embeddings = [(vectors(16, 32) + 0.3).bfloat16() for _ in range(2)]
    embeddings[1] = embeddings[1] + 0.01
    labels = vectors(16, 48)
    expected = RankCSELoss(tiny_model).compute_loss_from_embeddings(embeddings, labels)
    batch = Batch([dict(tiny_model.preprocess(SENTENCES[:16]))], labels)
    parts = CachedRankCSELoss(tiny_model).calculate_loss([list(e.split(4)) for e in embeddings], batch)
    for name, value in expected.items():
        assert parts[name].dtype == torch.float32
        torch.testing.assert_close(parts[name], value, rtol=1e-5, atol=1e-7)


def test_replays_dropout(tiny_model) -> None:
    """Prevents gradients of other dropout masks than those of the embeddings: with one mini-batch a plain step."""
    tiny_model.train()
    columns, labels = [TEXTS, list(TEXTS)], vectors(21, 2, 48)
    # One forward for each column, as the cached loss makes them, so that the masks are drawn in the same order.
    columns[1][0] += " again"
    expected_parts, expected = parts_and_gradients(tiny_model, RankCSELoss(tiny_model), columns, labels)
    cached = CachedRankCSELoss(tiny_model, mini_batch_size=64)
    parts, gradients = parts_and_gradients(tiny_model, cached, columns, labels)
    for name, value in parts.items():
        torch.testing.assert_close(value, expected_parts[name], rtol=1e-5, atol=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)
    # Mini-batches draw other masks, but the backward pass must see those of the forward pass: compare by differences.
    cached = CachedRankCSELoss(tiny_model, mini_batch_size=8)
    weight = tiny_model[0].auto_model.encoder.layer[1].output.dense.weight
    with torch.no_grad():
        direction, epsilon = torch.randn_like(weight), 1e-3
        slope = 0.0
        for sign in (1, -1):
            weight += sign * epsilon * direction
            slope += sign * float(parts_and_value(tiny_model, cached, columns, labels)) / (2 * epsilon)
            weight -= sign * epsilon * direction
    _, gradients = parts_and_gradients(tiny_model, cached, columns, labels)
    gradient = next(g for name, g in gradients.items() if name.endswith("encoder.layer.1.output.dense.weight"))
    along = (gradient * direction).sum()
    assert float(along) == pytest.approx(slope, rel=2e-2)


def parts_and_value(model, loss, columns, labels) -> torch.Tensor:
    with torch.enable_grad():
        parts, _ = parts_and_gradients(model, loss, columns, labels)
    return sum(parts.values()).detach()


def test_equal_views_are_an_error(make_tiny_model) -> None:
    """Prevents a cached loss that trains on two equal views without a word."""
    model = make_tiny_model(dropout=0.0).train()
    with pytest.raises(ValueError, match="set_dropout"):
        CachedRankCSELoss(model)([model.preprocess(TEXTS)], vectors(21, 48))


def test_inside_matryoshka_with_weights(make_tiny_model, monkeypatch) -> None:
    """Prevents parts or gradients that lose the weights of the dimensions, and labels cut to them."""
    model = make_tiny_model(dropout=0.0).train()
    columns, labels = [TEXTS, TEXTS[::-1]], vectors(21, 32)  # As wide as the embeddings.
    results = []
    for inner in (RankCSELoss(model), CachedRankCSELoss(model, mini_batch_size=5)):
        monkeypatch.setattr(inner, "_check_views_differ", lambda embeddings: None)
        loss = MatryoshkaLoss(model, inner, [32, 16, 8], matryoshka_weights=[1, 0.5, 2])
        results.append(parts_and_gradients(model, loss, columns, labels))
    (expected_parts, expected), (parts, gradients) = results
    for name, value in parts.items():
        torch.testing.assert_close(value, expected_parts[name], rtol=1e-5, atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-4)


def test_through_the_trainer(tiny_model, tmp_path) -> None:
    """Prevents a cached loss whose parts the trainer cannot log, or that does not learn or evaluate."""
    dataset = Dataset.from_dict({"sentence": SENTENCES, "label": vectors(64, 48).tolist()})
    args = SentenceTransformerTrainingArguments(
        tmp_path, per_device_train_batch_size=32, max_steps=12, logging_steps=4, learning_rate=1e-3, report_to=[],
        eval_strategy="steps", eval_steps=12, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    loss = CachedRankCSELoss(tiny_model, mini_batch_size=8)
    trainer = SentenceTransformerTrainer(
        model=tiny_model, args=args, train_dataset=dataset, eval_dataset=dataset, loss=loss
    )
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    for log in logs:
        assert log["loss"] == pytest.approx(log["contrastive"] + log["consistency"] + log["distillation"], abs=1e-2)
    assert logs[-1]["loss"] < logs[0]["loss"]
    evaluation = next(log for log in trainer.state.log_history if "eval_loss" in log)
    assert evaluation["eval_distillation"] > 0


def test_static_embedding_is_refused() -> None:
    """Prevents an error from deep inside the cache for a model that has nothing to cache."""
    model = SentenceTransformer(modules=[StaticEmbedding(build_tokenizer(), embedding_dim=8)])
    with pytest.raises(ValueError, match="use RankCSELoss"):
        CachedRankCSELoss(model)


def test_rows_at_a_time_change_nothing(monkeypatch) -> None:
    """Prevents a loss that depends on how many rows are worked on at once, or wrong gradients of single parts."""
    u, v = torch.randn(23, 16, dtype=torch.float64), torch.randn(23, 16, dtype=torch.float64)
    labels = vectors(23, 8).double()
    loss: Callable = RankCSELoss(SentenceTransformer(modules=[StaticEmbedding(build_tokenizer(), embedding_dim=16)]))
    results = []
    for elements in (1, 70, 2**18):
        monkeypatch.setattr(rows, "CPU_ELEMENTS", elements)
        u.requires_grad_(), v.requires_grad_()
        parts = loss.compute_loss_from_embeddings([u, v], labels)
        gradients = [torch.autograd.grad(part, [u, v], retain_graph=True) for part in parts.values()]
        total = torch.autograd.grad(parts.total, [u, v])
        results.append((parts, gradients, total))
        for i in range(2):
            torch.testing.assert_close(sum(gradient[i] for gradient in gradients), total[i])
        assert not torch.allclose(gradients[0][0], gradients[2][0])  # Canary: the parts' gradients are their own.
    for parts, gradients, total in results[1:]:
        torch.testing.assert_close(list(parts.values()), list(results[0][0].values()))
        torch.testing.assert_close(gradients, results[0][1])
        torch.testing.assert_close(total, results[0][2])
    assert in_batch.row_ranges is rows.row_ranges
