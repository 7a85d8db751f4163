"""The losses in the real trainer: logged, learning, resumed, and leaving an ordinary model behind."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from training_runs import logged, scored, train

from rankcse_st import ListwiseDistillationLoss, RankCSELoss, RankingConsistencyLoss

PARTS = ["contrastive", "consistency", "distillation"]

LOSSES = {
    "rankcse-listnet": RankCSELoss,
    "rankcse-listmle": lambda model: RankCSELoss(model, method="listmle"),
    "simcse": lambda model: RankCSELoss(model, consistency_weight=0.0, distillation_weight=0.0),
    "consistency": RankingConsistencyLoss,
    "listnet": ListwiseDistillationLoss,
    "listmle": lambda model: ListwiseDistillationLoss(model, method="listmle"),
}


def graded(sentences: list[str]) -> Dataset:
    """Anchors with three candidates of grades 0 to 3, the last one missing in every other row."""
    rows = len(sentences) // 4
    return Dataset.from_dict(
        {
            "anchor": sentences[:rows],
            "first": sentences[rows : 2 * rows],
            "second": sentences[2 * rows : 3 * rows],
            "third": [text if i % 2 else "" for i, text in enumerate(sentences[3 * rows :])],
            "scores": [[3.0, 1.0, 0.0 if i % 2 else math.nan] for i in range(rows)],
        }
    )


class TestLearning:
    @pytest.mark.parametrize("name", LOSSES)
    def test_loss_falls(self, tiny_model, tiny_teacher, sentences, tmp_path, name: str):
        """Prevents a loss that does not learn: on one batch, again and again, it must fall."""
        vectors = tiny_teacher.encode(sentences[:16], normalize_embeddings=True)
        data = Dataset.from_dict({"sentence": sentences[:16], "label": vectors.tolist()})
        options = {"max_steps": 30, "learning_rate": 5e-4, "per_device_train_batch_size": 16}
        losses = logged(train(tiny_model, tmp_path, LOSSES[name], data, **options), "loss")
        assert len(losses) == 30
        entropy = 0.0
        if "listnet" in name:  # ListNet cannot fall below the entropy of the teachers' lists.
            logits = torch.from_numpy(vectors @ vectors.T / 0.025).fill_diagonal_(-1e9)
            entropy = torch.distributions.Categorical(logits=logits).entropy().mean().item()
            assert min(losses) > entropy
        assert np.mean(losses[-5:]) - entropy < 0.85 * (np.mean(losses[:3]) - entropy)

    def test_parts_are_logged_and_sum_to_the_loss(self, tiny_model, tmp_path):
        """Field report 3: a loss of which nobody can see what it is made of; each part is logged, weight applied."""
        trainer = train(
            tiny_model, tmp_path, lambda model: RankCSELoss(model, consistency_weight=3.0), scored(), max_steps=5
        )
        entries = [entry for entry in trainer.state.log_history if "loss" in entry]
        assert len(entries) == 5
        for entry in entries:
            assert all(entry[part] > 0 for part in PARTS)
            assert sum(entry[part] for part in PARTS) == pytest.approx(entry["loss"], abs=2e-4)

    def test_terms_that_are_off_are_not_logged(self, tiny_model, tmp_path):
        """Prevents columns of zeros in the log from being taken for a collapse."""
        trainer = train(tiny_model, tmp_path, LOSSES["simcse"], scored(), max_steps=2)
        assert [part for part in PARTS if logged(trainer, part)] == ["contrastive"]

    def test_explicit_lists(self, tiny_model, sentences, tmp_path):
        """Field report 24: graded lists with missing entries, straight from a dataset with NaN and ""."""
        loss = ListwiseDistillationLoss(tiny_model)
        trainer = train(tiny_model, tmp_path, loss, graded(sentences), max_steps=20)
        losses = logged(trainer, "loss")
        assert all(math.isfinite(value) for value in losses)
        assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])

    def test_evaluation_dataset(self, tiny_model, tmp_path):
        """Prevents evaluation on a dataset, in eval mode with both views equal, from failing or not being logged."""
        trainer = train(
            tiny_model,
            tmp_path,
            RankCSELoss,
            scored(slice(0, 32)),
            eval_dataset=scored(slice(32, 64)),
            eval_strategy="steps",
            eval_steps=1,
            max_steps=2,
        )
        assert len(logged(trainer, "eval_loss")) == 2
        assert logged(trainer, "eval_consistency") == [0.0, 0.0]
        assert min(logged(trainer, "eval_distillation")) > 0

    def test_one_loss_for_datasets_of_different_forms(self, tiny_model, sentences, tmp_path):
        """Prevents a loss from remembering the form of the first batch's labels."""
        loss = RankCSELoss(tiny_model, teacher_temperature=0.5)
        vectors = scored(slice(0, 16))
        pairs = Dataset.from_dict(
            {
                "sentence": sentences[:16],
                "positive": sentences[16:32],
                "label": [[vector, vector[::-1]] for vector in vectors["label"]],
            }
        )
        trainer = train(
            tiny_model,
            tmp_path,
            loss,
            {"vectors": vectors, "graded": graded(sentences), "pairs": pairs},
            max_steps=6,
            multi_dataset_batch_sampler="round_robin",
        )
        assert all(value > 0 for value in logged(trainer, "distillation"))


class TestSaved:
    def test_reloads_to_the_same_embeddings(self, tiny_model, sentences, tmp_path):
        """Field report 4: what is only for training must not be in what is saved: an ordinary model."""
        train(tiny_model, tmp_path, RankCSELoss, scored(), max_steps=3)
        tiny_model.save_pretrained(str(tmp_path / "final"))
        reloaded = SentenceTransformer(str(tmp_path / "final"), device="cpu")
        assert np.array_equal(reloaded.encode(sentences), tiny_model.encode(sentences))
        assert [type(module).__name__ for module in reloaded] == ["Transformer", "Pooling"]
        assert not list((tmp_path / "final").rglob("*.bin"))

    def test_loads_where_this_package_is_not_installed(self, tiny_model, sentences, tmp_path):
        """Prevents a saved model that needs this package: another process, in which importing it is an error."""
        train(tiny_model, tmp_path, RankCSELoss, scored(), max_steps=1)
        tiny_model.save_pretrained(str(tmp_path / "final"))
        np.save(tmp_path / "expected.npy", tiny_model.encode(sentences))
        script = f"""
import sys
sys.modules["rankcse_st"] = None
try:
    import rankcse_st
except ImportError:
    pass
else:
    raise SystemExit("rankcse_st could be imported")
import json, numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({str(tmp_path / "final")!r}, device="cpu")
np.save({str(tmp_path / "found.npy")!r}, model.encode(json.loads({json.dumps(json.dumps(sentences))})))
"""
        subprocess.run([sys.executable, "-c", script], check=True, timeout=200, capture_output=True, cwd=tmp_path)
        np.testing.assert_allclose(
            np.load(tmp_path / "found.npy"), np.load(tmp_path / "expected.npy"), rtol=0, atol=1e-6
        )

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (
                lambda model, teacher: RankCSELoss(model, teachers=[teacher], method="listmle", consistency_weight=0.5),
                ["RankCSELoss", '"method": "listmle"', '"consistency_weight": 0.5', '"teachers":'],
            ),
            (
                lambda model, teacher: RankingConsistencyLoss(model, temperature=0.07),
                ["RankingConsistencyLoss", '"temperature": 0.07'],
            ),
            (
                lambda model, teacher: ListwiseDistillationLoss(model, teacher, student_temperature=0.02),
                ["ListwiseDistillationLoss", '"student_temperature": 0.02'],
            ),
        ],
        ids=["rankcse", "consistency", "distillation"],
    )
    def test_card(self, tiny_model, tiny_teacher, sentences, tmp_path, make, expected: list[str]):
        """Prevents a card that does not say by which loss, with which parameters, and from which paper."""
        train(
            tiny_model,
            tmp_path,
            make(tiny_model, tiny_teacher),
            Dataset.from_dict({"sentence": sentences}),
            max_steps=1,
        )
        tiny_model.save_pretrained(str(tmp_path / "final"))
        card = (tmp_path / "final" / "README.md").read_text(encoding="utf-8")
        for text in [*expected, "{R}ank{CSE}", "https://aclanthology.org/2023.acl-long.771/"]:
            assert text in card

    def test_resumed_run_equals_an_uninterrupted_one(self, make_tiny_model, tmp_path):
        """Field report 6: a run that is resumed must go on where it was: batches, dropout, optimizer and weights."""
        options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "lr_scheduler_type": "linear", "seed": 7}
        whole = make_tiny_model()
        first = train(whole, tmp_path / "whole", RankCSELoss, scored(), **options)
        checkpoint = tmp_path / "whole" / "checkpoint-3"
        resumed = make_tiny_model(seed=5)  # other weights: all must come from the checkpoint
        torch.manual_seed(99)
        random.seed(99)
        second = train(resumed, tmp_path / "resumed", RankCSELoss, scored(), resume=str(checkpoint), **options)
        at_the_checkpoint = load_file(checkpoint / "model.safetensors")
        final = whole[0].auto_model.state_dict()
        # The canary. (transformers 5.0 saves some weights under older names.)
        assert any(not torch.equal(value, final[name]) for name, value in at_the_checkpoint.items() if name in final)
        for name, value in whole.state_dict().items():
            assert torch.equal(value, resumed.state_dict()[name]), name
        assert logged(second, "loss")[-3:] == logged(first, "loss")[-3:]

    def test_resumed_with_live_teachers(self, make_tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents teachers from having a state of their own that a checkpoint would have to hold."""
        data = Dataset.from_dict({"sentence": sentences})
        options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
        whole, resumed = make_tiny_model(), make_tiny_model(seed=5)
        train(whole, tmp_path / "whole", RankCSELoss(whole, tiny_teacher), data, **options)
        train(
            resumed,
            tmp_path / "resumed",
            RankCSELoss(resumed, tiny_teacher),
            data,
            resume=str(tmp_path / "whole" / "checkpoint-2"),
            **options,
        )
        for name, value in whole.state_dict().items():
            assert torch.equal(value, resumed.state_dict()[name]), name


class TestReproducible:
    def test_same_seed_same_model(self, make_tiny_model, tmp_path):
        """Prevents anything outside the seed (hashes, caches, threads) from reaching the weights."""
        models = [make_tiny_model() for _ in range(3)]
        for k, model in enumerate(models):
            train(model, tmp_path / str(k), RankCSELoss, scored(), max_steps=3, seed=(1, 1, 2)[k])
        one, same, other = (model.state_dict() for model in models)
        assert all(torch.equal(value, same[name]) for name, value in one.items())
        assert not all(torch.equal(value, other[name]) for name, value in one.items())
