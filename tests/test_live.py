"""Live teachers: the same scores as attached ones, from the raw text, each sentence once, never part of the model."""

from __future__ import annotations

import copy
import logging
import math
import pickle

import pytest
import torch
from batches import columns, features, gradients, total, unit_vectors
from conftest import build_tokenizer
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from tiny_models import STATIC, build_student
from transformers import BertConfig, BertForSequenceClassification

from rankcse_st import ListwiseDistillationLoss, RankCSELoss, Teacher, TeacherEnsemble, TextCollator

N = 6
PARTS = ["contrastive", "consistency", "distillation"]


def with_text(
    model: SentenceTransformer, *texts: list[str], names: tuple[str, ...] = ("sentence", "positive", "negative")
):
    """Columns as the trainer passes them where TextCollator wraps its collator."""
    batch = columns(model, *texts)
    for column, text, name in zip(batch, texts, names, strict=False):
        column["text"], column["text_column"] = list(text), name
    return batch


def record(teacher: SentenceTransformer | CrossEncoder, method: str = "encode") -> list:
    """Everything that a teacher is asked, call by call."""
    asked: list = []
    original = getattr(teacher, method)

    def asking(inputs, *args, **kwargs):
        asked.append((list(inputs), kwargs))
        return original(inputs, *args, **kwargs)

    setattr(teacher, method, asking)
    return asked


def texts_of(asked: list) -> list[str]:
    return [text for texts, _ in asked for text in texts]


def make_trainer(model, loss, data, tmp_path, *, raw: bool = True, **arguments) -> SentenceTransformerTrainer:
    options = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_steps": 1,
    } | arguments
    trainer = SentenceTransformerTrainer(
        model=model, args=SentenceTransformerTrainingArguments(str(tmp_path), **options), train_dataset=data, loss=loss
    )
    if raw:
        trainer.data_collator = TextCollator(trainer.data_collator)
    return trainer


class TestEqualsAttached:
    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_value_and_gradient(self, tiny_model, tiny_teacher, make_tiny_model, sentences, method: str, count: int):
        """Prevents live scores from being others than attached ones: two weighted teachers, one to three columns."""
        teachers = TeacherEnsemble([Teacher(tiny_teacher, weight=1.0), Teacher(make_tiny_model(seed=3), weight=2.0)])
        texts = [sentences[k * N : (k + 1) * N] for k in range(count)]
        labels = torch.stack([teachers.encode(column) for column in texts], dim=1)
        labels = labels[:, 0] if count == 1 else labels
        tiny_model.train()
        found = []
        for loss, given in (
            (RankCSELoss(tiny_model, teachers, method=method), None),
            (RankCSELoss(tiny_model, method=method), labels),
        ):
            torch.manual_seed(0)
            parts = loss(with_text(tiny_model, *texts), given)
            total(parts).backward()
            found.append((parts, gradients(tiny_model)))
            tiny_model.zero_grad()
        (live, live_gradients), (attached, attached_gradients) = found
        assert live["distillation"] > 0
        for name in PARTS:
            torch.testing.assert_close(live[name], attached[name], rtol=1e-5, atol=1e-7)
        for name, gradient in attached_gradients.items():
            torch.testing.assert_close(live_gradients[name], gradient, rtol=1e-4, atol=1e-6)
        other = RankCSELoss(tiny_model, method=method)(with_text(tiny_model, *texts), labels.flip(0))
        assert abs(other["distillation"] - attached["distillation"]) > 1e-3  # the canary: other scores, another loss

    def test_explicit_lists(self, tiny_model, tiny_teacher, sentences):
        """Prevents live scores of candidates from being the wrong ones; missing candidates ("") are left out."""
        anchors, first, second = sentences[:4], sentences[4:8], [*sentences[8:11], ""]
        loss = ListwiseDistillationLoss(tiny_model, tiny_teacher, label_form="lists", teacher_temperature=0.05)
        attached = ListwiseDistillationLoss(tiny_model, teacher_temperature=0.05)
        a, b, c = (tiny_teacher.encode(t, convert_to_tensor=True) for t in (anchors, first, second))
        scores = torch.stack([torch.cosine_similarity(a, b), torch.cosine_similarity(a, c)], dim=1)
        scores[3, 1] = math.nan
        tiny_model.eval()
        live = loss(with_text(tiny_model, anchors, first, second))
        assert live > 0
        torch.testing.assert_close(live, attached(columns(tiny_model, anchors, first, second), scores))

    def test_cross_encoder(self, tiny_model, sentences, tmp_path):
        """Prevents cross-encoders, which have no embeddings, from being unusable as teachers of explicit lists."""
        tokenizer = build_tokenizer(lowercase=False)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            num_labels=1,
            initializer_range=0.5,
        )
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        teacher = CrossEncoder(str(tmp_path), device="cpu")
        anchors, first, second = sentences[:4], sentences[4:8], sentences[8:12]
        scores = torch.tensor(
            [teacher.predict(list(zip(anchors, candidates, strict=True))).tolist() for candidates in (first, second)]
        ).T
        tiny_model.eval()
        live = ListwiseDistillationLoss(tiny_model, teacher, label_form="lists")(
            with_text(tiny_model, anchors, first, second)
        )
        attached = ListwiseDistillationLoss(tiny_model)(columns(tiny_model, anchors, first, second), scores)
        assert scores.std() > 1e-3
        torch.testing.assert_close(live, attached)
        with pytest.raises(TypeError, match="cross-encoder"):
            ListwiseDistillationLoss(tiny_model, teacher)(with_text(tiny_model, anchors))

    def test_training(self, make_tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents the two ways to the teachers' scores from training different models, over two epochs."""
        vectors = tiny_teacher.encode(sentences, normalize_embeddings=True)
        trained = []
        for name, columns_ in (("live", {}), ("attached", {"label": vectors.tolist()})):
            model = make_tiny_model()
            loss = RankCSELoss(model, tiny_teacher if name == "live" else None)
            data = Dataset.from_dict({"sentence": sentences} | columns_)
            make_trainer(model, loss, data, tmp_path / name, num_train_epochs=2, learning_rate=1e-3).train()
            trained.append(model.encode(sentences))
        plain = make_tiny_model().encode(sentences)
        assert abs(trained[1] - plain).max() > 0.1  # the canary: it was trained
        assert abs(trained[0] - trained[1]).max() < 1e-2

    def test_scores_in_float32_under_autocast(self, tiny_model, tiny_teacher, sentences):
        """Prevents the trainer's autocast from rounding the teachers' scores, so that they tie."""
        loss = RankCSELoss(tiny_model, tiny_teacher)
        expected = TeacherEnsemble(tiny_teacher).encode(sentences[:N])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = loss.teachers(tiny_model, with_text(tiny_model, sentences[:N]))
        assert vectors.dtype == torch.float32
        assert torch.equal(vectors, expected)


class TestRawText:
    def test_what_the_teacher_reads(self, make_tiny_model, tiny_teacher, sentences, tmp_path):
        """Field reports 7 and 8: a teacher that reads the student's token ids, lower-cased and cut at 8 tokens."""
        model = make_tiny_model(max_length=8)
        model.max_seq_length = 8
        long = [f"{a} {b}" for a, b in zip(sentences[:16], sentences[16:32], strict=True)]
        asked = record(tiny_teacher)
        loss = RankCSELoss(model, tiny_teacher)
        make_trainer(model, loss, Dataset.from_dict({"sentence": long}), tmp_path).train()
        assert sorted(texts_of(asked)) == sorted(long)
        truncated = model.preprocess(long)["input_ids"]
        assert truncated.shape[1] == 8  # the canary: the student does not see the whole text

    def test_several_columns_and_prompts(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents a column's text from reaching another one's prompt; the student's prompts are not the teacher's."""
        teacher = Teacher(tiny_teacher, prompt={"query": "Anna ", "document": "The river "})
        asked = record(tiny_teacher)
        loss = ListwiseDistillationLoss(tiny_model, [teacher])
        data = Dataset.from_dict({"query": sentences[:8], "document": sentences[8:16]})
        make_trainer(tiny_model, loss, data, tmp_path, prompts={"query": "A dog "}).train()
        by_prompt = {options.get("prompt"): texts for texts, options in asked}
        assert {prompt: sorted(texts) for prompt, texts in by_prompt.items()} == {
            "Anna ": sorted(sentences[:8]),
            "The river ": sorted(sentences[8:16]),
        }

    def test_prompts_change_the_scores(self, tiny_model, tiny_teacher, sentences):
        """Field report 9: a missing prompt costs 40 points; the prompt must arrive in the scores."""
        tiny_model.eval()
        texts = sentences[:N], sentences[N : 2 * N]
        plain = ListwiseDistillationLoss(tiny_model, tiny_teacher)
        prompted = ListwiseDistillationLoss(
            tiny_model, Teacher(tiny_teacher, prompt={"query": "Anna ", "document": ""})
        )
        expected = torch.stack(
            [
                tiny_teacher.encode(texts[0], prompt="Anna ", convert_to_tensor=True, normalize_embeddings=True),
                tiny_teacher.encode(texts[1], convert_to_tensor=True, normalize_embeddings=True),
            ],
            dim=1,
        )
        attached = ListwiseDistillationLoss(tiny_model)(columns(tiny_model, *texts), expected)
        names = ("query", "document")
        torch.testing.assert_close(prompted(with_text(tiny_model, *texts, names=names)), attached)
        assert abs(plain(with_text(tiny_model, *texts, names=names)) - attached) > 1e-3

    def test_columns_whose_names_begin_alike(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents the text of ``text_pair`` from being taken for that of ``text``."""
        asked = record(tiny_teacher)
        loss = RankCSELoss(tiny_model, tiny_teacher)
        data = Dataset.from_dict({"text": sentences[:8], "text_pair": sentences[8:16]})
        make_trainer(tiny_model, loss, data, tmp_path).train()
        assert sorted(texts_of(asked)) == sorted(sentences[:16])

    def test_blank_text_is_an_error(self, tiny_model, tiny_teacher, sentences):
        """Prevents an empty sentence from being ranked: missing entries are for explicit lists only."""
        with pytest.raises(ValueError, match="not blank"):
            RankCSELoss(tiny_model, tiny_teacher)(with_text(tiny_model, [*sentences[:3], ""]))


class TestDecoded:
    def test_said_once_and_what_is_lost(self, tiny_model, tiny_teacher, sentences, caplog):
        """Prevents decoding, where only token ids are at hand, from being silent, or said in every step."""
        asked = record(tiny_teacher)
        loss = RankCSELoss(tiny_model, tiny_teacher)
        tiny_model.train()
        with caplog.at_level(logging.WARNING, logger="rankcse_st"):
            for start in (0, N, 2 * N):
                loss([features(tiny_model, sentences[start : start + N])])
        messages = [r.getMessage() for r in caplog.records if r.name.startswith("rankcse_st")]
        assert len(messages) == 1
        assert "lose the case" in messages[0]
        assert "max_seq_length of 32" in messages[0]
        assert "trainer.data_collator = TextCollator(trainer.data_collator)" in messages[0]
        assert [t.replace(" ", "") for t in texts_of(asked)] == [
            s.lower().replace(" ", "") for s in sentences[: 3 * N]
        ]  # nothing but the case and a space before the full stop

    def test_nothing_said_with_the_raw_text(self, tiny_model, tiny_teacher, sentences, caplog):
        """Prevents a warning that would be wrong."""
        with caplog.at_level(logging.WARNING, logger="rankcse_st"):
            RankCSELoss(tiny_model, tiny_teacher).eval()(with_text(tiny_model, sentences[:N]))
        assert not [r for r in caplog.records if r.name.startswith("rankcse_st")]

    def test_through_the_trainer_without_collator(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents a plain script, with the default collator and sentences only, from failing."""
        loss = RankCSELoss(tiny_model, teachers=[tiny_teacher])
        trainer = make_trainer(tiny_model, loss, Dataset.from_dict({"sentence": sentences[:16]}), tmp_path, raw=False)
        trainer.train()
        assert all(part in trainer.state.log_history[0] for part in PARTS)

    def test_flat_tokens(self, tiny_teacher, sentences):
        """Prevents the rows of StaticEmbedding's token stream from running into each other."""
        model = build_student(STATIC)
        asked = record(tiny_teacher)
        ListwiseDistillationLoss(model, tiny_teacher)([features(model, sentences[:N])])
        assert [t.replace(" ", "") for t in texts_of(asked)] == [s.lower().replace(" ", "") for s in sentences[:N]]

    def test_a_sentence_of_unknown_words(self, tiny_model, tiny_teacher, sentences):
        """Prevents an emoji, unknown to the student, from decoding to nothing and ending the training."""
        asked = record(tiny_teacher)
        RankCSELoss(tiny_model, tiny_teacher).train()([features(tiny_model, [*sentences[:3], "xyzzy"])])
        assert all(text.strip() for text in texts_of(asked))

    def test_no_tokens_at_all(self, tiny_model, tiny_teacher):
        """Prevents an obscure error where there is no text to be had."""
        with pytest.raises(ValueError, match=r"there is no text.*TextCollator"):
            RankCSELoss(tiny_model, tiny_teacher).teachers(tiny_model, [{"pixel_values": torch.ones(2, 3)}])


class TestOnceEach:
    def test_once_with_the_cache(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents teachers from running in every epoch: each sentence is encoded once in three epochs."""
        asked = record(tiny_teacher)
        loss = RankCSELoss(tiny_model, tiny_teacher)
        data = Dataset.from_dict({"sentence": sentences[:16] + sentences[:4]})
        make_trainer(tiny_model, loss, data, tmp_path, num_train_epochs=3).train()
        assert sorted(texts_of(asked)) == sorted(sentences[:16])

    def test_once_per_epoch_without_a_cache(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents a sentence from being encoded for each of its views or terms; the canary of the test above."""
        asked = record(tiny_teacher)
        loss = RankCSELoss(tiny_model, tiny_teacher, teacher_cache_size=0)
        make_trainer(
            tiny_model, loss, Dataset.from_dict({"sentence": sentences[:16]}), tmp_path, num_train_epochs=3
        ).train()
        assert sorted(texts_of(asked)) == sorted(sentences[:16] * 3)

    @pytest.mark.parametrize("cache_size", [0, 1000])
    def test_the_same_text_in_two_columns(self, tiny_model, tiny_teacher, sentences, cache_size: int):
        """Prevents the recipe of the same text in two columns from costing the teachers twice."""
        asked = record(tiny_teacher)
        loss = RankCSELoss(tiny_model.train(), tiny_teacher, teacher_cache_size=cache_size)
        loss(with_text(tiny_model, sentences[:N], sentences[:N]))
        assert sorted(texts_of(asked)) == sorted(sentences[:N])

    def test_the_same_text_under_two_prompts(self, tiny_model, tiny_teacher, sentences):
        """Prevents what is remembered of one column from being given out for another one's prompt."""
        loss = RankCSELoss(tiny_model, Teacher(tiny_teacher, prompt={"sentence": "Anna ", "positive": ""}))
        vectors = loss.teachers(tiny_model, with_text(tiny_model, sentences[:N], sentences[:N]))
        assert (vectors[:, 0] - vectors[:, 1]).abs().amax(1).min() > 1e-3

    def test_bounded(self, tiny_model, tiny_teacher, sentences):
        """Prevents a cache that grows with the corpus: the least recently used leaves first."""
        asked = record(tiny_teacher)
        loss = ListwiseDistillationLoss(tiny_model, tiny_teacher, teacher_cache_size=8)
        for texts in (sentences[:6], sentences[6:12], sentences[4:10]):
            asked.clear()
            loss(with_text(tiny_model, texts))
            assert len(loss.teachers._cache) <= 8
        assert texts_of(asked) == []  # 4 and 5 stayed with 6 to 9
        loss(with_text(tiny_model, sentences[:2]))
        assert texts_of(asked) == sentences[:2]

    def test_a_batch_larger_than_the_cache(self, tiny_model, tiny_teacher, sentences):
        """Prevents a batch from evicting its own rows before they are read."""
        loss = ListwiseDistillationLoss(tiny_model, tiny_teacher, teacher_cache_size=3)
        vectors = loss.teachers(tiny_model, with_text(tiny_model, sentences[:10]))
        torch.testing.assert_close(vectors, TeacherEnsemble(tiny_teacher).encode(sentences[:10]))


class TestTeachersStayTeachers:
    def test_unchanged_by_training(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents teachers from being trained, put in training mode, given gradients, or put into a checkpoint."""
        before = copy.deepcopy(tiny_teacher.state_dict())
        modes = []
        tiny_teacher[0].auto_model.embeddings.register_forward_hook(
            lambda module, _inputs, output: modes.append((module.dropout.training, output.requires_grad))
        )
        loss = RankCSELoss(tiny_model, tiny_teacher)
        trainer = make_trainer(
            tiny_model,
            loss,
            Dataset.from_dict({"sentence": sentences[:16]}),
            tmp_path,
            save_strategy="epoch",
            learning_rate=1e-2,
        )
        student = copy.deepcopy(tiny_model.state_dict())
        trainer.train()
        assert modes
        assert not any(training or gradient for training, gradient in modes)
        assert all(torch.equal(value, before[name]) for name, value in tiny_teacher.state_dict().items())
        assert all(p.grad is None for p in tiny_teacher.parameters())
        assert not all(torch.equal(value, student[name]) for name, value in tiny_model.state_dict().items())
        optimised = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
        assert optimised == {id(p) for p in tiny_model.parameters()}
        reloaded = SentenceTransformer(str(tmp_path / "checkpoint-2"))
        assert reloaded.state_dict().keys() == tiny_model.state_dict().keys()

    def test_a_teacher_in_training_mode(self, tiny_model, tiny_teacher, sentences):
        """Prevents a teacher that happens to be in training mode from scoring with dropout."""
        expected = TeacherEnsemble(tiny_teacher.eval()).encode(sentences[:N])
        tiny_teacher.train()
        loss = RankCSELoss(tiny_model, tiny_teacher).train()
        found = loss.teachers(tiny_model, with_text(tiny_model, sentences[:N]))
        torch.testing.assert_close(found, expected)
        assert not found.requires_grad

    def test_a_model_swap(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Field report 19: the trainer replaces every child called ``model``; teachers must not be among them."""
        loss = RankCSELoss(tiny_model, tiny_teacher)
        batch = sentences[:N]
        before = loss.teachers(tiny_model, with_text(tiny_model, batch))
        trainer = make_trainer(tiny_model, loss, Dataset.from_dict({"sentence": sentences[:16]}), tmp_path)
        compiled = torch.compile(tiny_model, backend="eager")
        loss = trainer.override_model_in_loss(loss, compiled)
        assert loss.model is compiled  # the canary: there was a swap
        loss.teachers._cache.clear()
        after = loss.teachers(loss.model, with_text(tiny_model, batch))
        assert torch.equal(before, after)
        assert after.shape == (N, 48)

    def test_a_naive_wrapper_would_be_swapped(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """The canary of the test above: a teacher under ``.model`` in a module becomes the student."""

        class NaiveTeacher(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

        loss = RankCSELoss(tiny_model)
        loss.teacher = NaiveTeacher(tiny_teacher)
        trainer = make_trainer(tiny_model, loss, Dataset.from_dict({"sentence": sentences[:16]}), tmp_path)
        compiled = torch.compile(tiny_model, backend="eager")
        trainer.override_model_in_loss(loss, compiled)
        assert loss.teacher.model is compiled

    def test_a_wrapped_student(self, tiny_model, tiny_teacher, sentences):
        """Prevents DDP's wrapper, which has no tokenizer and no width, from breaking live teachers."""
        compiled = torch.compile(tiny_model, backend="eager")
        loss = RankCSELoss(tiny_model, tiny_teacher)
        found = loss.teachers(compiled, [features(tiny_model, sentences[:N])])
        assert torch.equal(found, loss.teachers(tiny_model, [features(tiny_model, sentences[:N])]))

    def test_the_student_as_its_own_teacher(self, tiny_model, sentences):
        """Prevents self-distillation from switching the student's dropout off for good."""
        tiny_model.train()
        loss = RankCSELoss(tiny_model, tiny_model)
        parts = loss(with_text(tiny_model, sentences[:N]))
        total(parts).backward()
        assert all(module.training for module in tiny_model.modules())
        assert parts["consistency"] > 0


class TestCollator:
    def test_adds_only_text_and_names(self, tiny_model, sentences, tmp_path):
        """Prevents the wrapped collator's batch, labels included, from being changed."""
        data = Dataset.from_dict({"sentence": sentences[:8], "label": unit_vectors(8, 4).tolist()})
        trainer = make_trainer(tiny_model, RankCSELoss(tiny_model), data, tmp_path, raw=False)
        rows = [data[k] for k in range(4)]
        plain, wrapped = trainer.data_collator(rows), TextCollator(trainer.data_collator)(rows)
        assert wrapped["sentence_text"] == sentences[:4]
        assert wrapped["sentence_text_column"] == "sentence"
        assert set(wrapped) - set(plain) == {"sentence_text", "sentence_text_column"}
        for key, value in plain.items():
            assert torch.equal(value, wrapped[key]) if isinstance(value, torch.Tensor) else value == wrapped[key]

    def test_looks_like_what_it_wraps(self, tiny_model, sentences, tmp_path):
        """Prevents the trainer from missing the attributes of its collator, also across processes."""
        data = Dataset.from_dict({"sentence": sentences[:8]})
        trainer = make_trainer(tiny_model, RankCSELoss(tiny_model), data, tmp_path)
        assert trainer.data_collator.valid_label_columns == ["label", "labels", "score", "scores"]
        twin = pickle.loads(pickle.dumps(TextCollator(dict)))
        assert twin.collator is dict
        with pytest.raises(AttributeError):
            _ = twin.no_such_attribute

    def test_names_of_several_datasets(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents the name of a dataset from being taken for a sentence."""
        asked = record(tiny_teacher)
        loss = RankCSELoss(tiny_model, tiny_teacher)
        data = {
            "one": Dataset.from_dict({"sentence": sentences[:8]}),
            "two": Dataset.from_dict({"sentence": sentences[8:16]}),
        }
        make_trainer(tiny_model, loss, data, tmp_path).train()
        assert sorted(texts_of(asked)) == sorted(sentences[:16])

    def test_evaluation_dataset(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents strings in a batch from breaking evaluation on a dataset."""
        data = Dataset.from_dict({"sentence": sentences[:16]})
        trainer = make_trainer(tiny_model, RankCSELoss(tiny_model, tiny_teacher), data, tmp_path)
        metrics = trainer.evaluate(Dataset.from_dict({"sentence": sentences[16:30]}))
        assert metrics["eval_loss"] > 0

    def test_workers(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents the collator from failing in the processes of a dataloader."""
        asked = record(tiny_teacher)
        loss = RankCSELoss(tiny_model, tiny_teacher)
        data = Dataset.from_dict({"sentence": sentences[:16]})
        make_trainer(tiny_model, loss, data, tmp_path, dataloader_num_workers=1).train()
        assert sorted(texts_of(asked)) == sorted(sentences[:16])
