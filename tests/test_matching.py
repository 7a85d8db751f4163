"""The matching term: what it computes, beside what, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from batches import columns, features, gradients, total, unit_vectors
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss, MatryoshkaLoss
from torch import nn

from rankcse_st import CachedRankCSELoss, RankCSELoss

ALONE = {"contrastive_weight": 0.0, "consistency_weight": 0.0}
N, WIDTH = 6, 32


def test_adds_embed_distill(tiny_model, sentences) -> None:
    """A matching term that is not EmbedDistillLoss, that changes the others, or that gives no gradient."""
    model, labels = tiny_model.eval(), unit_vectors(N, WIDTH)
    batch = features(model, sentences[:N])
    parts = RankCSELoss(model, **ALONE, matching_weight=3.0)([dict(batch)], labels)
    plain = RankCSELoss(model, **ALONE)([dict(batch)], labels)
    assert set(parts) == {"distillation", "matching"}
    assert set(plain) == {"distillation"}
    torch.testing.assert_close(parts["distillation"], plain["distillation"])
    expected = EmbedDistillLoss(model)([dict(batch)], labels)
    torch.testing.assert_close(parts["matching"], 3 * expected)
    assert expected > 0.1
    parts["matching"].backward()
    found = gradients(model)
    model.zero_grad()
    (3 * expected).backward()
    assert max(gradient.abs().max() for gradient in found.values()) > 1e-3
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(found[name], gradient)


def test_every_view_and_column_is_matched_with_its_own_vector(tiny_model) -> None:
    """Only the anchor matched, or a column with the vectors of another."""
    loss = RankCSELoss(tiny_model, matching_weight=1.0)
    views = [unit_vectors(N, WIDTH, seed=seed, dtype=torch.float64).requires_grad_() for seed in (1, 2, 3)]
    labels = unit_vectors(N, 3, WIDTH, seed=4, dtype=torch.float64)
    cosines = [(view * labels[:, column]).sum(1).mean() for column, view in enumerate(views)]
    parts = loss.compute_loss_from_embeddings(views, labels)
    assert parts["matching"].item() == pytest.approx(1 - sum(cosines).item() / 3)
    shared = loss.compute_loss_from_embeddings(views[:2], labels[:, 0])
    expected = 1 - sum((view * labels[:, 0]).sum(1).mean() for view in views[:2]).item() / 2
    assert shared["matching"].item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda *v: loss.compute_loss_from_embeddings(v, labels)["matching"], views)


@pytest.mark.parametrize("loss_class", [RankCSELoss, CachedRankCSELoss])
def test_score_vectors_are_projected(loss_class: type[RankCSELoss], tiny_model, sentences) -> None:
    """A projection that is not applied, is rounded by autocast, or stands in a checkpoint of the loss."""
    labels, projection = unit_vectors(N, 48), torch.linalg.qr(torch.randn(48, WIDTH))[0]
    loss = loss_class(tiny_model.eval(), **ALONE, matching_weight=3.0, teacher_projection=projection)
    batch = columns(tiny_model, sentences[:N])
    expected = 3 * EmbedDistillLoss(tiny_model)(batch, labels @ projection)
    torch.testing.assert_close(loss(columns(tiny_model, sentences[:N]), labels)["matching"], expected)
    embeddings = [unit_vectors(N, WIDTH, seed=2)]
    exact = loss.compute_loss_from_embeddings(embeddings, labels)["matching"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss.compute_loss_from_embeddings(embeddings, labels)["matching"]
    torch.testing.assert_close(half, exact, atol=1e-6, rtol=0)
    assert not any("teacher_projection" in name for name in loss.state_dict())
    assert loss.get_config_dict()["teacher_projection"] == (48, WIDTH)


def test_another_space_is_remarked(make_tiny_model, sentences, caplog) -> None:
    """A student of the teacher's width but not of its space, worse after training than before, and nobody was told."""
    model = make_tiny_model()
    own = model.encode(sentences[:40], convert_to_tensor=True, normalize_embeddings=True).clone()
    model.train()
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0)))[0]
    for labels, projection, times in ((own, None, 0), (own @ turn, turn.T, 0), (own @ turn, None, 1), (own, turn, 1)):
        caplog.clear()
        loss = RankCSELoss(model, **ALONE, matching_weight=20.0, teacher_projection=projection)
        for _ in range(2):
            loss(columns(model, sentences[:40]), labels)
        assert caplog.text.count("not of one space") == times
        assert caplog.text.count("as teacher_projection brings them") == times * (projection is not None)


def test_truncate_dim_cuts_what_is_encoded_not_what_is_trained(tiny_model, sentences) -> None:
    """No matching, or an error at the first step, for a student whose truncate_dim cuts its embeddings in use."""
    labels, batch = unit_vectors(N, WIDTH), features(tiny_model.eval(), sentences[:N])
    loss = RankCSELoss(tiny_model, **ALONE, matching_weight=3.0)
    expected = {name: part.item() for name, part in loss([dict(batch)], labels).items()}
    tiny_model.truncate_dim = WIDTH // 2
    assert {name: part.item() for name, part in loss([dict(batch)], labels).items()} == expected
    assert tiny_model.truncate_dim == WIDTH // 2


def test_half_precision_is_compared_in_single(tiny_model) -> None:
    """Cosines near 1 rounded to steps of 0.004."""
    loss = RankCSELoss(tiny_model, **ALONE, matching_weight=1.0)
    labels = unit_vectors(N, WIDTH)
    exact = loss.compute_loss_from_embeddings([labels + 0.001], labels)["matching"]
    half = loss.compute_loss_from_embeddings([(labels + 0.001).bfloat16()], labels)["matching"]
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(exact.item(), abs=1e-4)


def test_acts_on_whole_embeddings_under_matryoshka(tiny_model, sentences) -> None:
    """A cut embedding matched with half a score vector, which means nothing."""
    model, labels = tiny_model.eval(), unit_vectors(N, WIDTH)
    loss = RankCSELoss(model, **ALONE, matching_weight=3.0)
    parts = MatryoshkaLoss(model, loss, [WIDTH, 8])(columns(model, sentences[:N]), labels)
    expected = 3 * EmbedDistillLoss(model)(columns(model, sentences[:N]), labels)
    torch.testing.assert_close(parts["matching"], expected)
    assert total(parts) > expected


def test_errors(tiny_model, sentences) -> None:
    """Widths that differ must be named before a broadcast or a traceback from torch says something else."""
    batch = columns(tiny_model, sentences[:N])
    with pytest.raises(ValueError, match=r"32 dimensions and the score vectors 48.*fit_teacher_projection"):
        RankCSELoss(tiny_model, **ALONE, matching_weight=1.0)(batch, unit_vectors(N, 48))
    fitted = RankCSELoss(tiny_model, **ALONE, matching_weight=1.0, teacher_projection=torch.eye(40, WIDTH))
    with pytest.raises(ValueError, match=r"score vectors 48 .*teacher_projection is for 40"):
        fitted(batch, unit_vectors(N, 48))
    for wrong in (torch.eye(WIDTH, 40), torch.eye(WIDTH).long(), torch.ones(WIDTH), torch.eye(WIDTH).numpy()):
        with pytest.raises(ValueError, match=r"teacher_projection must be a float tensor .*student's d = 32"):
            RankCSELoss(tiny_model, matching_weight=1.0, teacher_projection=wrong)
    with pytest.raises(ValueError, match="matching_weight is 0"):
        RankCSELoss(tiny_model, teacher_projection=torch.eye(WIDTH))
    lists = columns(tiny_model, *(sentences[i : i + N] for i in range(4)))
    with pytest.raises(ValueError, match="needs score vectors"):
        RankCSELoss(tiny_model, **ALONE, matching_weight=1.0)(lists, torch.rand(N, 3))
    with pytest.raises(ValueError, match="at least 0, got -1"):
        RankCSELoss(tiny_model, matching_weight=-1)
    with pytest.raises(ValueError, match="EmbedDistillLoss"):
        RankCSELoss(tiny_model, distillation_weight=0, matching_weight=1)


def test_is_off_by_default_and_in_the_config(tiny_model) -> None:
    """Training that is not RankCSE's without anybody having asked for it; a model card that does not say so."""
    assert RankCSELoss(tiny_model).get_config_dict()["matching_weight"] == 0.0
    assert RankCSELoss(tiny_model, matching_weight=2.0).get_config_dict()["matching_weight"] == 2.0
    assert not any(isinstance(module, nn.Linear) for module in RankCSELoss(tiny_model, matching_weight=2.0).children())
