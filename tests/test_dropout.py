"""Dropout is what makes two views of a sentence differ: it is read, set and checked by what it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SENTENCES
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.modules import Dropout, Normalize
from tiny_models import STATIC, TRANSFORMERS, build_student
from torch import Tensor, nn

from rankcse_st.dropout import get_dropout, has_active_dropout, set_dropout

WITHOUT_DROPOUT = ("modernbert", "qwen3")  # by their configs' defaults


def train_pass(model: SentenceTransformer) -> Tensor:
    model.train()
    with torch.no_grad():
        return model(model.preprocess(SENTENCES[:4]))["sentence_embedding"]


def passes_differ(model: SentenceTransformer) -> bool:
    return not torch.equal(train_pass(model), train_pass(model))


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_defaults_are_read_as_the_family_ships_them(family: str) -> None:
    """A modern encoder that ships with dropout 0.0 must not be taken for one whose views differ."""
    model = build_student(family)
    values = set(get_dropout(model).values())
    assert values == ({0.0} if family in WITHOUT_DROPOUT else {0.1})
    assert has_active_dropout(model) is passes_differ(model) is (family not in WITHOUT_DROPOUT)


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_set_dropout_acts_in_training_and_not_in_evaluation(family: str) -> None:
    """A setter that writes config fields leaves a built model as it was; one that misses places leaves noise at 0."""
    model = build_student(family)
    before = model.encode(SENTENCES[:4], convert_to_tensor=True)
    set_dropout(model, 0.2)
    assert set(get_dropout(model).values()) == {0.2}
    assert has_active_dropout(model)
    assert passes_differ(model)
    assert torch.equal(model.encode(SENTENCES[:4], convert_to_tensor=True), before)
    set_dropout(model, 0.0)
    assert set(get_dropout(model).values()) == {0.0}
    assert not has_active_dropout(model)
    assert not passes_differ(model)
    torch.testing.assert_close(train_pass(model), before)


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_every_place_that_is_reported_acts_alone(family: str) -> None:
    """A float that happens to have "dropout" in its name, but is never applied, must not be reported as dropout."""
    model = build_student(family)
    places = get_dropout(model)
    assert places
    for place in places:
        set_dropout(model, {name: 0.5 * (name == place) for name in places})
        assert passes_differ(model), place


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_the_saved_model_keeps_the_config_it_came_with(family: str, tmp_path: Path) -> None:
    """The dropout of a training run must not turn up in the config of the model that is published."""
    model = build_student(family)
    model.save_pretrained(str(tmp_path / "before"))
    set_dropout(model, 0.3)
    model.save_pretrained(str(tmp_path / "after"))
    assert "dropout" in (tmp_path / "after" / "config.json").read_text()  # canary: there is a field to be changed
    for name in ("config.json", "modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "after" / name).read_bytes() == (tmp_path / "before" / name).read_bytes()
    loaded = SentenceTransformer(str(tmp_path / "after"), device="cpu")
    assert get_dropout(loaded) == get_dropout(build_student(family))
    assert torch.equal(
        loaded.encode(SENTENCES[:4], convert_to_tensor=True), model.encode(SENTENCES[:4], convert_to_tensor=True)
    )


def test_changing_the_config_of_a_built_model_is_not_enough() -> None:
    """Canary for the need of this module: the obvious way, a field of the config, changes nothing."""
    model = build_student("modernbert")
    for field in ("attention_dropout", "mlp_dropout", "embedding_dropout"):
        setattr(model[0].auto_model.config, field, 0.5)
    assert not has_active_dropout(model)
    set_dropout(model, 0.5)
    assert has_active_dropout(model)


def test_checking_leaves_modes_and_random_state_alone() -> None:
    """A check inside a training run must not shift its random numbers or switch a frozen part to training."""
    model = build_student("bert").train()
    model[0].auto_model.embeddings.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    assert has_active_dropout(model)
    set_dropout(model, 0.1)
    assert torch.equal(torch.rand(4), expected)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert len(set(modes.values())) == 2


def test_checking_leaves_running_statistics_alone() -> None:
    """A pass in training mode updates batch normalisation, so the check would change the model it looks at."""

    class Normed(Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(32)

        def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            return features | {"sentence_embedding": self.norm(features["sentence_embedding"])}

        def save(self, output_path: str, *args: Any, **kwargs: Any) -> None: ...

    model = build_student("bert", modules=(Normed(),))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert has_active_dropout(model)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    train_pass(model)  # canary
    assert not all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_a_mapping_restores_what_was_read() -> None:
    """``set_dropout(model, get_dropout(model))`` is the way back, also where layers differ."""
    model = build_student("bert")
    last = model[0].auto_model.encoder.layer[-1].output.dropout
    last.p = 0.4
    before = get_dropout(model)
    assert before["0.model.encoder.layer.1.output.dropout"] == 0.4
    assert before["0.model.encoder.layer.0.output.dropout"] == 0.1
    assert "0.model.encoder.layer.*.attention.self.dropout" in before
    set_dropout(model, 0.0)
    assert last.p == 0.0
    set_dropout(model, before)
    assert get_dropout(model) == before
    set_dropout(model, {"0.model.encoder.layer.*.output.dropout": 0.25})
    assert get_dropout(model)["0.model.encoder.layer.*.output.dropout"] == 0.25
    assert last.p == 0.25
    assert get_dropout(model)["0.model.embeddings.dropout"] == 0.1


@pytest.mark.parametrize("p", [1.0, -0.1, float("nan"), "0.1", True, None, {"0.model.embeddings.dropout": 1.0}])
def test_impossible_probabilities_are_errors(p: Any) -> None:
    """Dropout 1.0 zeroes everything and a percentage (10) is a common slip."""
    model = build_student("bert")
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        set_dropout(model, p)
    assert set(get_dropout(model).values()) == {0.1}


def test_an_unknown_place_is_an_error_that_lists_the_known_ones() -> None:
    """A field of the config, given where a place is expected, must not be ignored."""
    with pytest.raises(ValueError, match=r"0\.model\.embeddings\.dropout.*hidden_dropout_prob"):
        set_dropout(build_student("bert"), {"hidden_dropout_prob": 0.1})


def test_a_probability_too_small_to_be_seen_is_verified_all_the_same() -> None:
    """Two short sentences are rarely hit at 1e-6: the verification must not depend on luck."""
    model = build_student("bert")
    set_dropout(model, 1e-6)
    assert set(get_dropout(model).values()) == {1e-6}


def test_static_embeddings_have_none_and_the_error_names_them() -> None:
    """A model without dropout cannot have two views; asking for dropout must not be silently ignored."""
    model = build_student(STATIC)
    assert get_dropout(model) == {}
    assert not has_active_dropout(model)
    set_dropout(model, 0.0)
    with pytest.raises(ValueError, match=r"Found no dropout in SentenceTransformer\(StaticEmbedding\)"):
        set_dropout(model, 0.1)


class HiddenDropout(Module):
    """A family that nobody knows: dropout under no name at all."""

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        embedding = nn.functional.dropout(features["sentence_embedding"], 0.3, self.training)
        return features | {"sentence_embedding": embedding}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None: ...


class UnusedDropout(HiddenDropout):
    """A family with a dropout module that its forward never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.2)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return features


def test_noise_that_remains_at_zero_is_an_error_that_names_the_class() -> None:
    """A dropout that was not found would leave a model noisy that reports 0."""
    model = build_student(STATIC, modules=(HiddenDropout(),))
    with pytest.raises(ValueError, match=r"HiddenDropout.* still differ"):
        set_dropout(model, 0.0)


def test_dropout_that_is_not_applied_is_an_error_and_changes_nothing() -> None:
    """Setting a module that the forward never calls must not pass for success."""
    model = build_student(STATIC, modules=(UnusedDropout(),))
    with pytest.raises(ValueError, match=r"UnusedDropout.* still coincide"):
        set_dropout(model, 0.1)
    assert get_dropout(model) == {"1.dropout": 0.2}
    set_dropout(model, 0.1, verify=False)
    assert get_dropout(model) == {"1.dropout": 0.1}


def test_a_failed_verification_leaves_places_that_are_built_without_dropout() -> None:
    """ModernBERT holds an Identity where dropout is 0: a failure must not leave a dropout module of 0.5 behind."""
    model = build_student("modernbert", modules=(HiddenDropout(),))
    with pytest.raises(ValueError, match="HiddenDropout"):
        set_dropout(model, 0.0)
    assert set(get_dropout(model).values()) == {0.0}


def test_layerdrop_is_left_alone() -> None:
    """Leaving out whole layers is another method; a setter by substring would switch it on."""
    model = build_student("bert")
    model[0].auto_model.encoder.layerdrop = 0.0
    set_dropout(model, 0.2)
    assert model[0].auto_model.encoder.layerdrop == 0.0
    assert not any("layerdrop" in name for name in get_dropout(model))


def test_a_dropout_module_of_sentence_transformers_is_set_where_it_acts(tmp_path: Path) -> None:
    """Its attribute ``dropout`` only repeats the config; its layer is what acts, and the saved config stays."""
    model = build_student(STATIC, modules=(Dropout(0.2), Normalize()))
    assert get_dropout(model) == {"1.dropout_layer": 0.2}
    set_dropout(model, 0.4)
    assert has_active_dropout(model)
    model.save_pretrained(str(tmp_path))
    assert json.loads((tmp_path / "1_Dropout" / "config.json").read_text()) == {"dropout": 0.2}


@pytest.mark.parametrize("lora_dropout", [0.0, 0.3])
def test_lora_dropout_is_found_whether_it_was_built_or_not(lora_dropout: float) -> None:
    """PEFT builds an Identity for lora_dropout=0: there must be a place to set it."""
    peft = pytest.importorskip("peft")
    model = build_student("qwen3")
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], lora_dropout=lora_dropout, init_lora_weights=False
    )
    peft.inject_adapter_in_model(config, model[0].auto_model)
    lora = {name: p for name, p in get_dropout(model).items() if "lora_dropout" in name}
    assert set(lora.values()) == {lora_dropout}
    assert len(lora) == 2
    set_dropout(model, dict.fromkeys(get_dropout(model), 0.0))
    assert not passes_differ(model)
    set_dropout(model, dict.fromkeys(lora, 0.5))
    assert passes_differ(model)
    set_dropout(model, 0.1)
    assert set(get_dropout(model).values()) == {0.1}
