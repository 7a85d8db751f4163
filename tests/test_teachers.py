"""Teachers: what they read, what they leave alone, what identifies them, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SENTENCES
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from teacher_models import lookup, make_cross_encoder, save_checkpoint
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel, RobertaModel

from rankcse_st.calibration import calibrated_weights, spread_of_lists, spread_of_similarities
from rankcse_st.data import TeacherScoreDataset
from rankcse_st.teachers import Teacher, TeacherEnsemble, load_cls_teacher

MakeModel = Callable[..., SentenceTransformer]


@pytest.fixture(scope="module")
def two_teachers(make_tiny_model: MakeModel) -> list[SentenceTransformer]:
    return [make_tiny_model(seed=1, dim=48, lowercase=False), make_tiny_model(seed=2)]


@pytest.fixture(scope="module")
def three_teachers(make_tiny_model: MakeModel) -> list[SentenceTransformer]:
    return [make_tiny_model(seed=seed) for seed in (1, 2, 3)]


# What the scores are


def test_score_vectors_multiply_to_the_weighted_cosines(two_teachers: list[SentenceTransformer]) -> None:
    """Bug: weights instead of their roots in the vectors, teachers out of order, or vectors that are not unit."""
    ensemble = TeacherEnsemble([Teacher(two_teachers[0], 2.0), Teacher(two_teachers[1], 1.0)])
    vectors = ensemble.encode(SENTENCES)
    expected = torch.zeros(len(SENTENCES), len(SENTENCES))
    for model, weight in zip(two_teachers, (2 / 3, 1 / 3), strict=True):
        embeddings = model.encode(SENTENCES, convert_to_tensor=True)
        expected += weight * torch.nn.functional.cosine_similarity(embeddings[:, None], embeddings[None], dim=-1)
    assert vectors.shape == (len(SENTENCES), ensemble.dimension) == (64, 80)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors @ vectors.T, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(64), atol=1e-6, rtol=0)
    torch.testing.assert_close(ensemble.weights, torch.tensor([2 / 3, 1 / 3]))
    equal = TeacherEnsemble(two_teachers).encode(SENTENCES)
    assert (equal @ equal.T - expected).abs().max() > 1e-2  # Canary: the weights matter.


@settings(max_examples=25, deadline=None)
@given(weights=st.lists(st.just(0.0) | st.floats(0.01, 100), min_size=3, max_size=3).filter(any), data=st.data())
def test_identity_of_score_vectors_holds_for_any_weights_and_order(
    three_teachers: list[SentenceTransformer], weights: list[float], data: st.DataObject
) -> None:
    """Bug: a teacher of weight 0 shifts the others' weights; the order of sentences reaches the scores."""
    models = three_teachers
    ensemble = TeacherEnsemble([Teacher(model, weight) for model, weight in zip(models, weights, strict=True)])
    texts = SENTENCES[:6]
    order = data.draw(st.permutations(range(6)))
    vectors = ensemble.encode([texts[i] for i in order])
    expected = torch.zeros(6, 6, dtype=torch.float64)
    for model, weight in zip(models, weights, strict=True):
        unit = torch.nn.functional.normalize(model.encode(texts, convert_to_tensor=True), dim=1).double()
        expected += weight / sum(weights) * (unit @ unit.T)[order][:, order]
    assert ensemble.dimension == 32 * sum(weight > 0 for weight in weights)
    torch.testing.assert_close((vectors @ vectors.T).double(), expected, atol=1e-5, rtol=0)


def test_a_teacher_reads_the_raw_text_with_its_own_tokenizer(two_teachers: list[SentenceTransformer]) -> None:
    """Bug (field report 7): a cased teacher fed lower-case text, or the student's tokens."""
    cased, uncased = two_teachers
    texts = ["Anna waits for the rain.", "anna waits for the rain."]
    first, second = TeacherEnsemble(cased).encode(texts)
    assert (first - second).abs().max() > 1e-3
    first, second = TeacherEnsemble(uncased).encode(texts)
    torch.testing.assert_close(first, second)


def test_max_seq_length_is_each_teachers_own_and_is_put_back(tiny_teacher: SentenceTransformer) -> None:
    """Bug (field report 8): one length for all, or a caller's model that cuts sentences from then on."""
    texts = ["The cat sleeps on the sofa.", "The cat likes warm bread."]
    short, full = Teacher(tiny_teacher, max_seq_length=4), Teacher(tiny_teacher)
    vectors = TeacherEnsemble([short, full]).encode(texts)
    torch.testing.assert_close(vectors[0, :48], vectors[1, :48])  # Both are "[CLS] The cat [SEP]".
    assert (vectors[0, 48:] - vectors[1, 48:]).abs().max() > 1e-3
    assert tiny_teacher.max_seq_length == 32


def test_duplicate_sentences_are_encoded_once() -> None:
    """Bug: paying twice for the same sentence in two columns or rows."""
    model, asked = lookup({"a": [1.0, 0.0], "b": [0.0, 2.0]})
    vectors = TeacherEnsemble(model).encode(["a", "b", "a", "a"])
    assert sorted(asked) == ["a", "b"]
    assert vectors.tolist() == [[1, 0], [0, 1], [1, 0], [1, 0]]


def test_a_teacher_of_weight_zero_is_never_loaded_nor_run(tiny_teacher: SentenceTransformer) -> None:
    """Bug: a teacher switched off still costs its download and its forward passes."""
    ensemble = TeacherEnsemble([Teacher("no/such-model", weight=0.0), tiny_teacher])
    assert ensemble.encode(SENTENCES[:3]).shape == (3, 48)
    assert ensemble.dimension == 48
    assert ensemble.describe()[0] == {"model": "no/such-model", "weight": 0.0}
    assert ensemble.fingerprint == TeacherEnsemble(tiny_teacher).fingerprint


def test_half_precision_checkpoints_are_scored_in_float32(tiny_teacher: SentenceTransformer, tmp_path: Path) -> None:
    """Bug: transformers loads a half-precision checkpoint in half precision, whose rounding makes false ties."""
    tiny_teacher.half().save_pretrained(str(tmp_path / "half"))
    from_path = TeacherEnsemble(tmp_path / "half", device="cpu")
    assert from_path.readers[0].load().dtype == torch.float32
    assert TeacherEnsemble(tmp_path / "half", dtype=torch.bfloat16).readers[0].load().dtype == torch.bfloat16
    scores = {name: t @ t.T for name, t in (
        ("float32", from_path.encode(SENTENCES)),
        ("half", TeacherEnsemble(tiny_teacher).encode(SENTENCES)),
    )}  # fmt: skip
    assert scores["half"].dtype == torch.float32
    assert tiny_teacher.dtype == torch.float16  # The caller's model keeps its dtype.
    torch.testing.assert_close(scores["half"], scores["float32"], atol=5e-3, rtol=0)
    assert scores["float32"].unique().numel() > 1900


# Prompts


@pytest.fixture
def prompted() -> tuple[SentenceTransformer, list[str]]:
    """A teacher whose own default prompt is "own: "."""
    model, asked = lookup({"a": [1.0, 0.0], "b": [0.0, 1.0]})
    model.prompts = {"own": "own: ", "other": "other: "}
    model.default_prompt_name = "own"
    return model, asked


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [(None, "own: a"), ("", "a"), ("mine: ", "mine: a"), ({"c": "mine: "}, "mine: a"), ({"d": "mine: "}, "own: a")],
)
def test_a_prompt_replaces_the_teachers_own_and_is_never_dropped_or_doubled(
    prompted: tuple[SentenceTransformer, list[str]], prompt: str | dict[str, str] | None, expected: str
) -> None:
    """Bug (field report 9): the model's default prompt lost, or put before the given one as well."""
    model, asked = prompted
    TeacherEnsemble(Teacher(model, prompt=prompt)).encode(["a", "b"], column="c")
    assert asked[0] == expected


def test_prompts_by_column_need_a_column(prompted: tuple[SentenceTransformer, list[str]]) -> None:
    """Bug: sentences of an unknown column silently read without a prompt."""
    ensemble = TeacherEnsemble(Teacher(prompted[0], prompt={"query": "q: "}))
    with pytest.raises(ValueError, match=r"each of the columns \['query'\].*not known here.*TextCollator\("):
        ensemble.encode(["a", "b"])


def test_the_name_of_a_prompt_is_not_its_text(prompted: tuple[SentenceTransformer, list[str]]) -> None:
    """Bug: prompt="query", meant as sentence-transformers' prompt_name, put before every sentence."""
    with pytest.raises(ValueError, match="prompt='other: '"):
        TeacherEnsemble(Teacher(prompted[0], prompt="other")).encode(["a", "b"])


def test_prompts_that_no_one_chose_are_a_warning(prompted: tuple[SentenceTransformer, list[str]]) -> None:
    """Bug: a model with query and document prompts read with neither, and nobody told."""
    model, _ = prompted
    model.default_prompt_name = None
    with pytest.warns(UserWarning, match="none of which it applies by itself"):
        TeacherEnsemble(model).encode(["a", "b"])
    TeacherEnsemble(Teacher(model, prompt="")).encode(["a", "b"])  # Said: no warning, which would be an error here.


def test_a_prompt_that_the_texts_have_already_is_a_warning() -> None:
    """Bug: data prepared with "query: " and a teacher told to add it again."""
    model, _ = lookup({"query: a": [1.0, 0.0], "query: b": [0.0, 1.0]})
    with pytest.warns(UserWarning, match="it is there twice"):
        TeacherEnsemble(Teacher(model, prompt="query: ")).encode(["query: a", "query: b"])


# What is left alone


def test_the_students_own_state_survives_being_its_teacher(tiny_model: SentenceTransformer) -> None:
    """Bug: encode() leaves the student in eval mode, and the next step trains without dropout."""
    tiny_model.train()
    frozen = tiny_model[0].model.embeddings
    frozen.eval()  # A module that the caller froze must not wake up.
    modes = [module.training for module in tiny_model.modules()]
    assert True in modes
    assert False in modes
    state = torch.get_rng_state()
    ensemble = TeacherEnsemble(Teacher(tiny_model, max_seq_length=8))
    vectors = ensemble.encode(SENTENCES)
    assert [module.training for module in tiny_model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert tiny_model.max_seq_length == 32
    assert all(parameter.requires_grad and parameter.grad is None for parameter in tiny_model.parameters())
    torch.testing.assert_close(vectors, ensemble.encode(SENTENCES))  # No dropout inside.


def test_the_models_state_is_put_back_after_an_error_too() -> None:
    """Bug: an exception in the middle of encoding leaves the student in eval mode."""
    model, _ = lookup({"a": [1.0, 0.0]})
    model.train()
    with pytest.raises(KeyError):
        TeacherEnsemble(model).encode(["a", "not in the table"])
    assert all(module.training for module in model.modules())


def test_score_vectors_can_be_saved_for_backward(tiny_teacher: SentenceTransformer) -> None:
    """Bug: sentence-transformers' inference tensors reach autograd, which refuses to save them."""
    vectors = TeacherEnsemble(tiny_teacher).encode(SENTENCES[:4])
    weight = torch.ones(4, 4, requires_grad=True)
    (weight * (vectors @ vectors.T)).sum().backward()
    assert weight.grad is not None
    assert weight.grad.abs().sum() > 0
    assert not vectors.requires_grad


def test_autocast_around_the_loss_does_not_reach_the_teachers(tiny_teacher: SentenceTransformer) -> None:
    """Bug: the trainer's mixed precision makes live scores differ from attached ones."""
    expected = TeacherEnsemble(tiny_teacher).encode(SENTENCES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = tiny_teacher.encode(SENTENCES, convert_to_tensor=True, normalize_embeddings=True)
        actual = TeacherEnsemble(tiny_teacher).encode(SENTENCES)
    torch.testing.assert_close(actual, expected)
    assert (rounded.float() - expected).abs().max() > 1e-4  # Canary: autocast does something.


def test_teachers_are_invisible_to_a_loss_that_holds_them(tiny_teacher: SentenceTransformer) -> None:
    """Bug (field report 19): teachers found among a loss's modules are trained, saved or replaced by the student."""

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ensemble = TeacherEnsemble(tiny_teacher)

    assert len(list(Loss().modules())) == 1
    assert not list(Loss().parameters())


def test_the_device_is_that_of_the_model_or_the_given_one(tiny_teacher: SentenceTransformer) -> None:
    """Bug: encoding moves the caller's model; a device that was given is not used."""
    ensemble = TeacherEnsemble(tiny_teacher)
    assert ensemble.to("meta") is ensemble
    assert tiny_teacher[0].model.embeddings.word_embeddings.weight.device.type == "meta"
    model = SentenceTransformer(modules=[Transformer(tiny_teacher[0].model.config._name_or_path), Pooling(48)])
    TeacherEnsemble(model, device="meta").readers[0].load()
    assert model[0].model.embeddings.word_embeddings.weight.device.type == "meta"


# Identity


def test_fingerprint_changes_with_all_that_changes_scores(make_tiny_model: MakeModel) -> None:
    """Bug: old scores found for a teacher with other weights, tokens, pooling, prompt, length or dtype."""

    def fingerprint(change: Callable[[SentenceTransformer], object] = lambda model: None, **options: object) -> str:
        model = make_tiny_model(seed=1)
        change(model)
        return TeacherEnsemble(Teacher(model, **options)).fingerprint  # type: ignore[arg-type]

    def nudge(model: SentenceTransformer) -> None:
        with torch.no_grad():
            model[0].model.encoder.layer[1].output.dense.bias[3] += 1e-6

    prints = [
        fingerprint(),
        fingerprint(nudge),
        fingerprint(lambda model: model.half()),
        fingerprint(lambda model: model.append(Normalize())),
        fingerprint(lambda model: setattr(model, "truncate_dim", 16)),
        fingerprint(lambda model: setattr(model[0].tokenizer, "padding_side", "left")),
        fingerprint(prompt="p: "),
        fingerprint(prompt={"sentence": "p: "}),
        fingerprint(max_seq_length=9),
        TeacherEnsemble(make_tiny_model(seed=1, pooling="cls")).fingerprint,
        TeacherEnsemble(make_tiny_model(seed=1, max_length=24)).fingerprint,
        TeacherEnsemble([Teacher(make_tiny_model(seed=1), 1.0), Teacher(make_tiny_model(seed=1), 2.0)]).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint() == prints[0]


def test_fingerprint_is_not_changed_by_use_mode_or_dropout(make_tiny_model: MakeModel) -> None:
    """Bug: a teacher that has encoded once, or is in training, is taken for another one."""
    model = make_tiny_model(seed=1)
    before = TeacherEnsemble(model).fingerprint
    model.encode(["The cat sleeps."])  # Sets the tokenizer's padding and truncation.
    model.train()
    assert TeacherEnsemble(model).fingerprint == before
    assert TeacherEnsemble(make_tiny_model(seed=1, dropout=0.3)).fingerprint == before


def test_fingerprint_ignores_a_pooler_that_is_not_read(tmp_path: Path) -> None:
    """Bug: a checkpoint without pooler gets a random one at every load, and its scores are never found again."""
    save_checkpoint(tmp_path / "no-pooler", BertForMaskedLM)
    models = [
        SentenceTransformer(modules=[Transformer(str(tmp_path / "no-pooler")), Pooling(32)], device="cpu")
        for _ in range(2)
    ]
    poolers = [model[0].model.pooler.dense.weight for model in models]
    assert not torch.equal(*poolers)  # Canary: they do differ.
    first, second = (TeacherEnsemble(model).fingerprint for model in models)
    assert first == second


class _OutsideTorch:
    """What a transformer is with the ONNX and OpenVINO backends: no module, no weights that torch can read."""

    def __init__(self, inner: torch.nn.Module) -> None:
        self.config = inner.config
        self._inner = inner

    def forward(self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, **_: Any) -> Any:
        return self._inner(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)


def test_models_outside_torch_teach_but_are_not_cached(make_tiny_model: MakeModel, tmp_path: Path) -> None:
    """Bug: two ONNX models with other weights have one fingerprint, and each finds the other's scores."""
    models = [make_tiny_model(seed=seed) for seed in (1, 2)]
    expected = [TeacherEnsemble(model).encode(SENTENCES) for model in models]
    assert not torch.equal(*expected)  # Canary: they are different models.
    for model, vectors in zip(models, expected, strict=True):
        inner = model[0].model
        del model[0].model
        model[0].model = _OutsideTorch(inner)
        ensemble = TeacherEnsemble(model)
        scored = TeacherScoreDataset.from_sentences(SENTENCES, ensemble, show_progress_bar=False)
        torch.testing.assert_close(torch.as_tensor(scored["label"][:]), vectors, atol=1e-5, rtol=0)
        (record,) = TeacherScoreDataset.records(scored)
        assert record["fingerprint"] is None
        assert record["teachers"][0]["fingerprint"] is None
        assert ensemble.fingerprint is None
        with pytest.raises(ValueError, match=r"_OutsideTorch cannot be read.*backend=\"torch\".*without cache_dir"):
            TeacherScoreDataset.from_sentences(SENTENCES, ensemble, cache_dir=tmp_path, show_progress_bar=False)


def test_describe_is_a_complete_json_record(tiny_teacher: SentenceTransformer) -> None:
    """Bug: a record that cannot be written down, or that leaves out what made the scores."""
    ensemble = TeacherEnsemble(
        [Teacher(tiny_teacher, 3.0, prompt={"a": "p: "}, max_seq_length=9), Teacher(tiny_teacher)]
    )
    first, second = json.loads(json.dumps(ensemble.describe()))
    assert first["weight"] == 0.75
    assert first["prompt"] == {"a": "p: "}
    assert (first["max_seq_length"], second["max_seq_length"]) == (9, 32)
    assert first["pooling"] == ["mean"]
    assert first["dtype"] == "float32"
    assert first["kind"] == "SentenceTransformer"
    assert first["fingerprint"] != second["fingerprint"]


# Loading


def test_a_bare_checkpoint_warns_that_its_pooling_was_guessed(tmp_path: Path) -> None:
    """Bug (field report 5): a SimCSE checkpoint silently read with mean pooling, 20 points worse."""
    save_checkpoint(tmp_path / "bare")
    with pytest.warns(UserWarning, match=r"mean pooling was guessed.*load_cls_teacher"):
        TeacherEnsemble(tmp_path / "bare").encode(SENTENCES[:2])


def _as_simcse_checkpoint(folder: Path) -> None:
    """Rename the weights as SimCSE's training script saves them, with its MLP and DiffCSE's discriminator."""
    weights = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    weights = {name: value for name, value in weights.items() if ".pooler." not in name}
    weights |= {
        "mlp.dense.weight": torch.randn(32, 32),
        "mlp.dense.bias": torch.randn(32),
        "mlp.net.0.weight": torch.randn(64, 32),
        "discriminator.encoder.layer.0.output.dense.weight": torch.randn(32, 64),
        "lm_head.bias": torch.randn(10),
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertForCL"]}))


@pytest.mark.parametrize("kind", ["pooler", "training", "roberta"])
def test_load_cls_teacher_reads_the_last_layer_at_cls(tmp_path: Path, kind: str) -> None:
    """Bug (field report 5): another pooling, or the pooler's tanh on top, than SimCSE's own evaluation."""
    folder = tmp_path / "checkpoint"
    model = save_checkpoint(folder, RobertaModel if kind == "roberta" else BertModel)
    if kind == "training":
        _as_simcse_checkpoint(folder)
    teacher = load_cls_teacher(folder, device="cpu")
    batch = teacher.tokenizer(SENTENCES[:5], padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**{name: batch[name] for name in ("input_ids", "attention_mask")})
    actual = teacher.encode(SENTENCES[:5], convert_to_tensor=True)
    torch.testing.assert_close(actual, output.last_hidden_state[:, 0], atol=1e-5, rtol=1e-5)
    assert (actual - output.pooler_output).abs().max() > 0.1  # Canary: the pooler would be noticed.
    TeacherEnsemble(teacher).encode(SENTENCES[:5])  # Its pooling is known: no warning, which would be an error.


def test_load_cls_teacher_options(tmp_path: Path) -> None:
    """Bug: options that are taken and not used; a saved teacher that comes back with another pooling."""
    save_checkpoint(tmp_path / "bare")
    teacher = load_cls_teacher(tmp_path / "bare", dtype=torch.float16, max_seq_length=7)
    assert teacher.dtype == torch.float16
    assert teacher.max_seq_length == 7
    assert not teacher.training
    teacher.save_pretrained(str(tmp_path / "saved"))
    assert TeacherEnsemble(tmp_path / "saved").describe()[0]["pooling"] == ["cls"]


def test_one_load_serves_teachers_that_differ_in_prompt(tmp_path: Path, tiny_teacher: SentenceTransformer) -> None:
    """Bug: the same model twice in memory."""
    tiny_teacher.save_pretrained(str(tmp_path))
    ensemble = TeacherEnsemble([Teacher(tmp_path, prompt="a: "), Teacher(tmp_path, prompt="b: ")])
    assert ensemble.readers[0].load() is ensemble.readers[1].load()
    other = ensemble.with_weights([0.0, 1.0])
    assert other.readers[1].load() is ensemble.readers[1].load()
    assert other.relative_weights == [0.0, 1.0]


# Lists of candidates


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    return make_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


def test_lists_are_scored_by_both_kinds_of_teacher(
    cross_encoder: CrossEncoder, tiny_teacher: SentenceTransformer
) -> None:
    """Bug: candidates out of place, missing ones scored, or a kind of teacher left out of the weighted mean."""
    anchors = SENTENCES[:2]
    candidates = [[SENTENCES[5], None, SENTENCES[7]], ["", SENTENCES[9], SENTENCES[0]]]
    scores = TeacherEnsemble([Teacher(cross_encoder, 3.0), Teacher(tiny_teacher, 1.0)]).score_lists(anchors, candidates)
    assert scores.shape == (2, 3)
    assert scores.isnan().tolist() == [[False, True, False], [True, False, False]]
    for row, listed in enumerate(candidates):
        for place, text in enumerate(listed):
            if text:
                a, b = tiny_teacher.encode([anchors[row], text], convert_to_tensor=True)
                cosine = float(torch.nn.functional.cosine_similarity(a, b, dim=0))
                expected = 0.75 * float(cross_encoder.predict([(anchors[row], text)])[0]) + 0.25 * cosine
                assert float(scores[row, place]) == pytest.approx(expected, abs=1e-5)
    assert (scores[0, 0] - scores[0, 2]).abs() > 1e-4  # Canary.


def test_a_cross_encoder_on_disk_is_known_as_one(tmp_path: Path) -> None:
    """Bug: a cross-encoder given by its path read as a bi-encoder with mean pooling."""
    make_cross_encoder(tmp_path / "old").save_pretrained(str(tmp_path / "new"))
    for name in ("old", "new"):  # Saved by transformers alone, and by sentence-transformers.
        assert isinstance(TeacherEnsemble(tmp_path / name).readers[0].load(), CrossEncoder)


def test_prompts_of_each_side_of_a_pair(tmp_path: Path) -> None:
    """Bug: a prompt of the candidates lost, or put before the anchor."""
    model, asked = lookup({text: [1.0, float(len(text))] for text in ("a", "b", "c")})
    teacher = Teacher(model, prompt={"query": "q: ", "document": "d: "})
    TeacherEnsemble(teacher).score_lists(["a"], [["b", "c"]], anchor_column="query", candidate_columns=["document"] * 2)
    assert sorted(asked) == ["d: b", "d: c", "q: a"]
    pairs = make_cross_encoder(tmp_path)
    prompts = {"query": "The cat ", "document": "A dog "}
    by_column = TeacherEnsemble(Teacher(pairs, prompt=prompts)).score_lists(
        ["sleeps"], [["runs"]], anchor_column="query", candidate_columns=["document"]
    )
    assert by_column.item() == pytest.approx(float(pairs.predict([("The cat sleeps", "A dog runs")])[0]), abs=1e-6)
    assert by_column.item() != pytest.approx(float(pairs.predict([("sleeps", "runs")])[0]), abs=1e-4)


def test_cross_encoders_have_no_vectors(cross_encoder: CrossEncoder) -> None:
    """Bug: an obscure failure deep in encode."""
    ensemble = TeacherEnsemble(cross_encoder)
    assert not ensemble.is_bi_encoder
    with pytest.raises(TypeError, match=r'is a cross-encoder.*scores="lists"'):
        ensemble.encode(SENTENCES)


def test_a_classifier_of_pairs_is_no_teacher(tmp_path: Path) -> None:
    """Bug: an NLI model's first class taken for a score."""
    save_checkpoint(tmp_path, BertForSequenceClassification, num_labels=3)
    with pytest.raises(ValueError, match="gives 3 numbers"):
        TeacherEnsemble(tmp_path).score_lists(["a"], [["b"]])


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([["a"]], "2 anchors, but 1 lists"),
        ([["a"], ["b", "c"]], 'from 1 to 2: fill short lists up with ""'),
        ([[], []], "no candidates"),
        ([["a"], ["  "]], "1 empty"),
    ],
)
def test_bad_lists(tiny_teacher: SentenceTransformer, candidates: list[list[str]], message: str) -> None:
    """Bug: lists that do not fit their anchors scored anyhow."""
    with pytest.raises(ValueError, match=message):
        TeacherEnsemble(tiny_teacher).score_lists(["x", "y"], candidates)


# Calibration


def _table(scale: float, seed: int, n: int = 12) -> dict[str, list[float]]:
    """Unit vectors whose cosines are ``scale`` times those of scale 1, plus a constant that no ranking sees."""
    x = torch.nn.functional.normalize(torch.randn(n, 5, generator=torch.Generator().manual_seed(seed)), dim=1)
    rows = torch.cat([math.sqrt(scale) * x, torch.full((n, 1), math.sqrt(1 - scale))], dim=1)
    return {str(i): row.tolist() for i, row in enumerate(rows)}


@pytest.mark.parametrize("calibrated", [True, False])
def test_calibration_makes_rankings_blind_to_a_teachers_scale(calibrated: bool) -> None:
    """Bug (field report 10): the teacher whose scores spread widest decides the ensemble."""
    texts = [str(i) for i in range(12)]
    rankings = []
    for scale in (1.0, 0.1):
        ensemble = TeacherEnsemble([lookup(_table(scale, seed=0))[0], lookup(_table(1.0, seed=1))[0]])
        if calibrated:
            ensemble = ensemble.calibrate(texts)
        vectors = ensemble.encode(texts)
        rankings.append((vectors @ vectors.T).argsort(dim=1))
    assert torch.equal(*rankings) is calibrated


def test_calibrated_weights_are_recorded_and_sum_to_one(two_teachers: list[SentenceTransformer]) -> None:
    """Bug: a calibration that leaves no trace in the record, or changes the sum of the weights."""
    ensemble = TeacherEnsemble([Teacher(two_teachers[0], 3.0), Teacher(two_teachers[1], 1.0)])
    calibrated = ensemble.calibrate(SENTENCES)
    spreads = [spread_of_similarities(embeddings) for embeddings in ensemble.encode_each(SENTENCES)]
    expected = torch.tensor([3 / spreads[0], 1 / spreads[1]])
    torch.testing.assert_close(calibrated.weights, expected / expected.sum(), rtol=1e-4, atol=0)
    assert calibrated.describe()[0]["calibrated_by_spread"] == pytest.approx(spreads[0], rel=1e-4)
    assert ensemble.relative_weights == [0.75, 0.25]  # The ensemble itself is not changed.
    assert calibrated.fingerprint != ensemble.fingerprint


def test_spreads_are_those_of_the_definition() -> None:
    """Bug: the diagonal, missing entries or a list's own level counted as spread."""
    unit = torch.nn.functional.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    cosines = [float(unit[i] @ unit[j]) for i in range(9) for j in range(i + 1, 9)]
    assert spread_of_similarities(unit) == pytest.approx(float(torch.tensor(cosines).std()), rel=1e-5)
    lists = torch.tensor([[1.0, 3.0, torch.nan], [100.0, 102.0, 104.0]])
    assert spread_of_lists(lists) == pytest.approx(math.sqrt((1 + 1 + 4 + 0 + 4) / 3))


def test_a_teacher_that_scores_everything_alike_cannot_be_calibrated() -> None:
    """Bug: division by a spread of 0."""
    with pytest.raises(ValueError, match=r"'x' gives all .* the same score"):
        calibrated_weights([1.0], [0.0], ["x"])
    constant, _ = lookup({str(i): [1.0, 1.0] for i in range(5)})
    with pytest.raises(ValueError, match="same score"):
        TeacherEnsemble(constant).calibrate([str(i) for i in range(5)])
    with pytest.raises(ValueError, match="at least 3 different sentences, but got 2"):
        TeacherEnsemble(constant).calibrate(["0", "1", "1"])


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weight": -1.0}, ValueError, "not negative, but got -1.0"),
        ({"weight": float("nan")}, ValueError, "must be finite"),
        ({"weight": float("inf")}, ValueError, "must be finite"),
        ({"weight": "2"}, TypeError, "must be a number"),
        ({"max_seq_length": 0}, ValueError, "at least 1, but got 0"),
        ({"max_seq_length": 8.0}, TypeError, "must be an integer"),
        ({"prompt": {"a": None}}, TypeError, "prompt must be a string"),
        ({"prompt": 3}, TypeError, "prompt must be a string"),
        ({"model": 3}, TypeError, "but got int"),
        ({"model": torch.nn.Linear(2, 2)}, TypeError, "but got Linear"),
    ],
)
def test_bad_teachers(options: dict[str, object], error: type[Exception], message: str) -> None:
    """Bug: nonsense accepted and found out after hours of scoring."""
    with pytest.raises(error, match=message):
        Teacher(**{"model": "some/model", **options})  # type: ignore[arg-type]


def test_bad_ensembles(tiny_teacher: SentenceTransformer) -> None:
    """Bug: no teachers, no weight, or weights that do not belong to the teachers."""
    with pytest.raises(ValueError, match="list of teachers is empty"):
        TeacherEnsemble([])
    with pytest.raises(ValueError, match="all 2 teachers are 0"):
        TeacherEnsemble([Teacher(tiny_teacher, 0.0), Teacher(tiny_teacher, 0)])
    with pytest.raises(ValueError, match="2 teachers, but 3 weights"):
        TeacherEnsemble([tiny_teacher, tiny_teacher]).with_weights([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="batch_size must be"):
        TeacherEnsemble(tiny_teacher, batch_size=0)
    with pytest.raises(ValueError, match="dtype must be one of"):
        TeacherEnsemble(tiny_teacher, dtype=torch.int8)
    ensemble = TeacherEnsemble([tiny_teacher])
    assert TeacherEnsemble.of(ensemble, batch_size=2) is ensemble
    assert TeacherEnsemble.of(tiny_teacher, batch_size=2).batch_size == 2


def test_a_length_that_the_teacher_does_not_have(tiny_teacher: SentenceTransformer) -> None:
    """Bug: an index error from the middle of a GPU kernel."""
    with pytest.raises(ValueError, match="longer than the 64 positions"):
        TeacherEnsemble(Teacher(tiny_teacher, max_seq_length=65)).encode(SENTENCES)
    with pytest.raises(ValueError, match="takes no max_seq_length"):
        TeacherEnsemble(Teacher(lookup({"a": [1.0]})[0], max_seq_length=5)).encode(["a"])


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    """Bug: a mistyped path looked up on the Hub."""
    with pytest.raises(FileNotFoundError, match="no teacher at"):
        TeacherEnsemble(tmp_path / "nowhere").encode(["a", "b"])


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["a", "", "b", " \n"], ValueError, r"of 4 there are 2 empty \(at 1, 3\)"),
        (["a", None, 3, ""], TypeError, r"1 None \(at 1\); 1 of type int \(at 2\); 1 empty \(at 3\)"),
        ("a sentence", TypeError, "got one str"),
        ([None] * 9, TypeError, r"9 None \(at 0, 1, 2, 3, 4, …\)"),
    ],
)
def test_bad_sentences(
    tiny_teacher: SentenceTransformer, texts: list[str], error: type[Exception], message: str
) -> None:
    """Bug: an error that does not say how many sentences are bad, or where."""
    with pytest.raises(error, match=message):
        TeacherEnsemble(tiny_teacher).encode(texts)


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0]])
def test_a_teacher_that_fails_is_named_with_the_sentence(bad: list[float]) -> None:
    """Bug: NaN scores that reach the loss, and a diverged training nobody can explain."""
    model, _ = lookup({"good": [1.0, 1.0], "bad": bad})
    with pytest.raises(
        ValueError, match=r"Teacher 'SentenceTransformer' returned NaN, infinity or a zero.*1 of 2.*'bad'"
    ):
        TeacherEnsemble(model).encode(["good", "bad"])
