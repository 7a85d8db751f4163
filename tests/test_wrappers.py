"""The losses inside MatryoshkaLoss, AdaptiveLayerLoss and Matryoshka2dLoss: right scores, two views, parts logged.

The embeddings are as wide as the labels or as long as the batch where that is what goes wrong: 8 in all cases.
"""

from __future__ import annotations

import math

import pytest
import torch
from batches import columns, features, gradients, total, unit_vectors
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import AdaptiveLayerLoss, Matryoshka2dLoss, MatryoshkaLoss
from tiny_models import STATIC, build_student

import rankcse_st.losses.base as base
from rankcse_st import ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss

DIM = 8
PARTS = ["contrastive", "consistency", "distillation"]
Embeddings = list[torch.Tensor]


@pytest.fixture
def model(make_tiny_model) -> SentenceTransformer:
    return make_tiny_model(dim=DIM).train()


@pytest.fixture
def seen(monkeypatch) -> list[Embeddings]:
    """What the inner loss is given, call by call."""
    calls: list[Embeddings] = []

    def embed_views(*args, **kwargs):
        calls.append(original(*args, **kwargs))
        return calls[-1]

    original = base.embed_views
    monkeypatch.setattr(base, "embed_views", embed_views)
    return calls


def layers_of(model: SentenceTransformer, *texts: list[str]) -> list[Embeddings]:
    """Embeddings at the embedding layer and every layer above, in one forward pass over all texts."""
    batch = features(model, [text for column in texts for text in column])
    transformer, pooling = model[0].auto_model, model[1]
    hidden = transformer(
        **{k: v for k, v in batch.items() if k in ("input_ids", "attention_mask")}, output_hidden_states=True
    )
    return [
        list(
            pooling({"token_embeddings": states, "attention_mask": batch["attention_mask"]})[
                "sentence_embedding"
            ].chunk(len(texts))
        )
        for states in hidden.hidden_states
    ]


def cut(embeddings: Embeddings, dim: int) -> Embeddings:
    return [torch.nn.functional.normalize(e[:, :dim], dim=-1) for e in embeddings]


def texts_of(sentences: list[str], rows: int, count: int) -> list[list[str]]:
    """Columns of sentences that all differ; as many as there are."""
    return [[sentences[(k * rows + i) % len(sentences)] for i in range(rows)] for k in range(count)]


def explicit_scores(rows: int, candidates: int) -> torch.Tensor:
    scores = torch.randint(0, 4, (rows, candidates), generator=torch.Generator().manual_seed(0)).float()
    scores[1, 1], scores[2, 0] = math.nan, math.nan
    return scores


CASES = {
    "sentences, labels as wide as the model": (6, 1, unit_vectors(6, DIM)),
    "sentences, batch as long as the model is wide": (DIM, 1, unit_vectors(DIM, DIM)),
    "sentences, wider labels": (6, 1, unit_vectors(6, 12)),
    "sentences, labels as wide as a smaller dimension": (6, 1, unit_vectors(6, 4)),
    "two columns sharing vectors": (6, 2, unit_vectors(6, DIM)),
    "vectors per column": (6, 3, unit_vectors(6, 3, DIM)),
    "vectors per column, batch as long as the model is wide": (DIM, 2, unit_vectors(DIM, 2, DIM)),
    "explicit scores of as many candidates as dimensions": (5, DIM + 1, explicit_scores(5, DIM)),
    "explicit scores, all sizes equal": (DIM, DIM + 1, explicit_scores(DIM, DIM)),
    "half precision labels": (6, 1, unit_vectors(6, DIM).half()),
    "float64 labels": (6, 3, unit_vectors(6, 3, DIM, dtype=torch.float64)),
}


class TestMatryoshka:
    @pytest.mark.parametrize("dims", [[8, 4, 2], [4, 3]], ids=["with the full one", "without the full one"])
    @pytest.mark.parametrize("case", CASES)
    def test_equals_computation_by_hand(self, model, sentences, case: str, dims: list[int]):
        """Field report 14: the teachers' labels cut with the embeddings: value, parts and gradients are right."""
        rows, count, labels = CASES[case]
        texts = texts_of(sentences, rows, count)
        weights = [1.0, 0.5, 0.25][: len(dims)]
        inner = RankCSELoss(model)
        torch.manual_seed(0)
        embeddings = base.embed_views(model, columns(model, *texts), 2)
        expected: dict[str, torch.Tensor] = {}
        for dim, weight in zip(dims, weights, strict=True):
            for name, part in inner.compute_loss_from_embeddings(cut(embeddings, dim), labels).items():
                expected[name] = expected.get(name, 0) + weight * part
        total(expected).backward()
        by_hand = gradients(model)
        model.zero_grad()

        torch.manual_seed(0)
        parts = MatryoshkaLoss(model, inner, dims, weights)(columns(model, *texts), labels)
        assert list(parts) == (["distillation"] if "explicit" in case else PARTS)
        for name, part in parts.items():
            assert part > 0
            torch.testing.assert_close(part, expected[name], rtol=1e-5, atol=1e-6)
        total(parts).backward()
        for name, gradient in gradients(model).items():
            torch.testing.assert_close(gradient, by_hand[name], rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize("case", [name for name, (*_, labels) in CASES.items() if labels.shape[-1] == DIM])
    def test_cut_labels_would_not_pass(self, model, sentences, monkeypatch, case: str):
        """The canary of the test above: with the cut left as it is, an error or another loss."""
        rows, count, labels = CASES[case]
        texts = texts_of(sentences, rows, count)
        model.eval()
        inner = RankCSELoss(model, normalize_labels=True)
        right = total(MatryoshkaLoss(model, inner, [8, 4])(columns(model, *texts), labels))
        widths = []
        monkeypatch.setattr(base, "undo_truncation", lambda labels, *_: widths.append(labels.shape[-1]) or labels)
        if labels.ndim == 3:
            MatryoshkaLoss(model, inner, [8, 4])(columns(model, *texts), labels)
            if widths == [8, 8]:
                pytest.skip("This version of Sentence Transformers does not cut labels of three axes.")
        if "explicit" in case:
            with pytest.raises(ValueError, match="must be"):
                MatryoshkaLoss(model, inner, [8, 4])(columns(model, *texts), labels)
        else:
            wrong = total(MatryoshkaLoss(model, inner, [8, 4])(columns(model, *texts), labels))
            assert abs(wrong - right) > 1e-3

    def test_views_differ_at_every_dimension(self, model, sentences, seen):
        """Prevents the second view from being the first one at every smaller dimension."""
        inner = RankCSELoss(model)
        passes = []
        model[0].register_forward_hook(lambda _module, _inputs, output: passes.append(len(output["token_embeddings"])))
        MatryoshkaLoss(model, inner, [8, 4, 2])([features(model, sentences[:6])], unit_vectors(6, 12))
        assert passes == [12]
        assert [u.shape[1] for u, _ in seen] == [8, 4, 2]
        for u, v in seen:
            assert ((u - v).abs().amax(1) > 1e-3).all()

    def test_one_feature_dict_twice_would_not_pass(self, model, sentences, seen, monkeypatch):
        """The canary of the test above: calling the model twice on the trainer's dict gives equal views."""
        monkeypatch.setattr(
            base,
            "embed_views",
            lambda model, columns, views, loss: (
                seen.append([model(columns[0])["sentence_embedding"] for _ in range(2)]) or seen[-1]
            ),
        )
        monkeypatch.setattr(base, "first_comparison", lambda columns, loss: False)
        MatryoshkaLoss(model, RankCSELoss(model), [8, 4])([features(model, sentences[:6])], unit_vectors(6, 12))
        assert not torch.allclose(*seen[0])
        torch.testing.assert_close(*seen[1])

    @pytest.mark.parametrize("steps", [1, 2])
    def test_a_few_dimensions_per_step(self, model, sentences, seen, steps: int):
        """Prevents the choice of dimensions, which may leave out the full one, from changing the teachers' scores."""
        inner = ListwiseDistillationLoss(model)
        labels = unit_vectors(6, DIM)
        loss = MatryoshkaLoss(model, inner, [8, 4, 2], n_dims_per_step=steps)
        model.eval()
        u = model.encode(sentences[:6], convert_to_tensor=True)
        widths = set()
        for _ in range(8):
            seen.clear()
            value = loss([features(model, sentences[:6])], labels)
            dims = [e.shape[1] for (e,) in seen]
            assert len(dims) == steps
            widths.update(dims)
            expected = sum(inner.compute_loss_from_embeddings(cut([u], dim), labels) for dim in dims)
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
        assert len(widths) > 1

    @pytest.mark.parametrize("make", [RankingConsistencyLoss, ListwiseDistillationLoss])
    def test_losses_of_one_term(self, model, sentences, make):
        """Prevents the losses that return a plain tensor from being wrapped otherwise."""
        value = MatryoshkaLoss(model, make(model), [8, 4])([features(model, sentences[:6])], unit_vectors(6, DIM))
        value.backward()
        assert value > 0

    def test_static_embedding(self, sentences):
        """Prevents a model of two forward passes from getting one column's embeddings for the other's."""
        model = build_student(STATIC)
        loss = RankCSELoss(model)
        texts, labels = (sentences[:6], sentences[8:14]), unit_vectors(6, 2, 32)
        embeddings = [model.encode(column, convert_to_tensor=True) for column in texts]
        expected = sum(total(loss.compute_loss_from_embeddings(cut(embeddings, dim), labels)) for dim in (32, 16))
        found = total(MatryoshkaLoss(model, loss, [32, 16])(columns(model, *texts), labels))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_live_teachers(self, model, tiny_teacher, sentences):
        """Prevents teachers from being asked, or cut, at every dimension: each sentence once per batch."""
        asked = []
        encode, tiny_teacher.encode = tiny_teacher.encode, lambda texts, **k: asked.extend(texts) or encode(texts, **k)
        model.eval()
        inner = RankCSELoss(model, teachers=tiny_teacher)
        value = MatryoshkaLoss(model, inner, [8, 4])([features(model, sentences[:6])], None)
        assert len(asked) == 6
        assert value["distillation"] > 0


class TestAdaptiveLayer:
    @pytest.mark.parametrize("dims", [None, [8, 4]], ids=["AdaptiveLayerLoss", "Matryoshka2dLoss"])
    def test_equals_computation_by_hand(self, model, sentences, dims: list[int] | None):
        """Prevents earlier layers from being missing, mixed up, equal in both views, or scored by cut labels."""
        labels, texts = unit_vectors(6, DIM), sentences[:6]
        inner = RankCSELoss(model)
        torch.manual_seed(0)
        *earlier, last = layers_of(model, texts, texts)
        expected: dict[str, torch.Tensor] = {}
        for embeddings, weight in [(last, 1.0), *((layer, 1 / len(earlier)) for layer in earlier)]:
            for width in dims or [None]:
                views = embeddings if width is None else cut(embeddings, width)
                for name, part in inner.compute_loss_from_embeddings(views, labels).items():
                    expected[name] = expected.get(name, 0) + weight * part
        total(expected).backward()
        by_hand = gradients(model)
        model.zero_grad()

        options = {"n_layers_per_step": -1, "kl_temperature": 0}
        if dims is None:
            wrapped = AdaptiveLayerLoss(model, inner, **options)
        else:
            wrapped = Matryoshka2dLoss(model, inner, dims, n_dims_per_step=-1, **options)
        torch.manual_seed(0)
        parts = wrapped([features(model, texts)], labels)
        assert list(parts) == PARTS
        for name in PARTS:
            assert parts[name] > 0
            torch.testing.assert_close(parts[name], expected[name], rtol=1e-5, atol=1e-6)
        total(parts).backward()
        for name, gradient in gradients(model).items():
            torch.testing.assert_close(gradient, by_hand[name], rtol=1e-3, atol=1e-5)

    def test_views_differ_at_every_layer(self, model, sentences, seen):
        """Prevents one dict used twice from giving equal views at every earlier layer."""
        AdaptiveLayerLoss(model, RankCSELoss(model), n_layers_per_step=-1)(
            [features(model, sentences[:6])], unit_vectors(6, 12)
        )
        assert len(seen) == 3
        for u, v in seen:
            assert ((u - v).abs().amax(1) > 1e-3).all()

    def test_the_wrappers_own_term_is_a_part(self, model, sentences):
        """Prevents the KL term from being lost: the parts sum to the loss."""
        model.eval()
        batch, labels = [features(model, sentences[:6])], unit_vectors(6, 12)
        without = AdaptiveLayerLoss(model, RankCSELoss(model), n_layers_per_step=-1, kl_temperature=0)(batch, labels)
        parts = AdaptiveLayerLoss(model, RankCSELoss(model), n_layers_per_step=-1)(
            [features(model, sentences[:6])], labels
        )
        plain = AdaptiveLayerLoss(model, ListwiseDistillationLoss(model, views=2), n_layers_per_step=-1)
        plain_without = AdaptiveLayerLoss(
            model, ListwiseDistillationLoss(model, views=2), n_layers_per_step=-1, kl_temperature=0
        )
        kl = plain([features(model, sentences[:6])], labels) - plain_without([features(model, sentences[:6])], labels)
        assert kl > 0
        assert list(parts) == [*PARTS, "added_by_wrapper"]
        torch.testing.assert_close(parts["added_by_wrapper"], kl, rtol=1e-3, atol=1e-5)
        for name in PARTS:
            torch.testing.assert_close(parts[name], without[name])

    def test_several_columns(self, model, sentences):
        """Prevents columns whose widths differ, and which go through the model one by one, from failing."""
        texts = sentences[:6], [f"{a} {b}" for a, b in zip(sentences[8:14], sentences[16:22], strict=True)]
        parts = AdaptiveLayerLoss(model, RankCSELoss(model), n_layers_per_step=-1)(
            columns(model, *texts), unit_vectors(6, 2, DIM)
        )
        total(parts).backward()
        assert total(parts).isfinite()

    def test_explicit_lists(self, model, sentences):
        """Prevents explicit scores from being refused or changed by the wrapper."""
        texts = texts_of(sentences, 5, DIM + 1)
        parts = Matryoshka2dLoss(model, RankCSELoss(model), [8, 4], n_layers_per_step=-1)(
            columns(model, *texts), explicit_scores(5, DIM)
        )
        assert set(parts) == {"distillation", "added_by_wrapper"}


class TestLogging:
    @pytest.mark.parametrize("wrapper", ["matryoshka", "adaptive", "2d"])
    def test_parts_in_the_log(self, model, sentences, tmp_path, wrapper: str):
        """Prevents the parts from vanishing from the log, or not summing to the loss, inside a wrapper."""
        inner = RankCSELoss(model)
        loss = {
            "matryoshka": lambda: MatryoshkaLoss(model, inner, [8, 4, 2]),
            "adaptive": lambda: AdaptiveLayerLoss(model, inner),
            "2d": lambda: Matryoshka2dLoss(model, inner, [8, 4, 2]),
        }[wrapper]()
        data = Dataset.from_dict({"sentence": sentences[:24], "label": unit_vectors(24, DIM).tolist()})
        arguments = SentenceTransformerTrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=8,
            num_train_epochs=1,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
        trainer.train()
        logged = [entry for entry in trainer.state.log_history if "loss" in entry]
        assert len(logged) == 3
        for entry in logged:
            names = [name for name in (*PARTS, "added_by_wrapper") if name in entry]
            assert names[:3] == PARTS
            assert ("added_by_wrapper" in names) == (wrapper != "matryoshka")
            assert all(entry[name] > 0 for name in names)
            assert sum(entry[name] for name in names) == pytest.approx(entry["loss"], abs=1e-3)
