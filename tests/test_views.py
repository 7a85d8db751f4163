"""How a batch goes through the model: two views in one forward pass where it has rows, and one key for one text."""

from __future__ import annotations

import pytest
import torch
from batches import columns, features, forwards_of
from tiny_models import STATIC, build_student

from rankcse_st import ListwiseDistillationLoss, RankingConsistencyLoss
from rankcse_st.collator import COLUMN_KEY, TEXT_KEY
from rankcse_st.views import embed_views, first_comparison, row_keys


class TestOneColumn:
    def test_two_views_of_one_forward(self, tiny_model, sentences):
        """Prevents the second view from costing a second forward pass, or being the first one."""
        tiny_model.train()
        with forwards_of(tiny_model) as rows:
            u, v = embed_views(tiny_model, [features(tiny_model, sentences[:6])], 2)
        assert rows == [12]
        assert u.shape == v.shape == (6, 32)
        assert ((u - v).abs().amax(1) > 1e-3).all()

    def test_equal_in_eval(self, tiny_model, sentences):
        """Prevents rows from being taken for another view's: in eval both views are what ``encode`` gives."""
        tiny_model.eval()
        with torch.no_grad():
            u, v = embed_views(tiny_model, [features(tiny_model, sentences[:6])], 2)
        expected = tiny_model.encode(sentences[:6], convert_to_tensor=True)
        torch.testing.assert_close(u, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(v, expected, rtol=1e-5, atol=1e-5)

    def test_one_view(self, tiny_model, sentences):
        """Prevents distillation alone from paying for a second view."""
        with forwards_of(tiny_model) as rows:
            views = embed_views(tiny_model, [features(tiny_model, sentences[:6])], 1)
        assert rows == [6]
        assert len(views) == 1

    def test_copies_of_a_row_have_masks_of_their_own(self, tiny_model, sentences):
        """Field report 2: do two copies of a row in one batch share a dropout mask?"""
        tiny_model.train()
        (u,) = embed_views(tiny_model, [features(tiny_model, [sentences[0]] * 4)], 1)
        assert len(torch.unique(u, dim=0)) == 4
        tiny_model.eval()
        (u,) = embed_views(tiny_model, [features(tiny_model, [sentences[0]] * 4)], 1)
        torch.testing.assert_close(u, u[:1].expand_as(u))

    def test_the_trainers_dict_is_not_the_models(self, tiny_model, sentences):
        """Prevents one feature dict from holding the outputs of both views, equal under MatryoshkaLoss."""
        batch = features(tiny_model, sentences[:4])
        embed_views(tiny_model, [batch], 2)
        assert "sentence_embedding" not in batch
        assert len(batch["input_ids"]) == 4

    def test_the_same_dicts_from_call_to_call(self, tiny_model, sentences):
        """Prevents AdaptiveLayerLoss from missing the layers that it left in a dict on its first call."""
        seen = []
        tiny_model[0].register_forward_pre_hook(lambda _module, inputs: seen.append(id(inputs[0])))
        batch = [features(tiny_model, sentences[:4])]
        for _ in range(3):
            embed_views(tiny_model, batch, 2)
        assert len(seen) == 3
        assert len(set(seen)) == 1

    def test_comparison_once_per_batch(self, tiny_model, sentences):
        """Prevents the earlier layers of AdaptiveLayerLoss from raising the error of equal views."""
        batches = [[features(tiny_model, sentences[:4])] for _ in range(2)]
        for batch in batches:
            embed_views(tiny_model, batch, 2)
            assert first_comparison(batch)
            embed_views(tiny_model, batch, 2)
            assert not first_comparison(batch)

    def test_text_does_not_reach_the_model(self, tiny_model, sentences):
        """Prevents what TextCollator adds from being passed to the model, which may take it for an input."""
        seen = []
        tiny_model[0].register_forward_pre_hook(lambda _module, inputs: seen.append(set(inputs[0])))
        batch = features(tiny_model, sentences[:4]) | {TEXT_KEY: sentences[:4], COLUMN_KEY: "sentence"}
        expected = set(batch) - {TEXT_KEY, COLUMN_KEY}
        embed_views(tiny_model, [batch], 2)
        assert seen == [expected]


class TestSeveralColumns:
    def test_one_width_one_forward(self, tiny_model, sentences):
        """Prevents the recipe of the same text in two columns from costing two forward passes."""
        tiny_model.eval()
        texts = sentences[:4], sentences[4:8], sentences[:4]
        with forwards_of(tiny_model) as rows, torch.no_grad():
            found = embed_views(tiny_model, self.padded(tiny_model, *texts), 1)
        assert rows == [12]
        self.check(tiny_model, texts, found)

    def test_different_widths_are_not_padded(self, tiny_model, sentences):
        """Prevents short queries from being padded to the width of long documents."""
        tiny_model.eval()
        texts = sentences[:4], [f"{a} {b}" for a, b in zip(sentences[:4], sentences[4:8], strict=True)]
        with forwards_of(tiny_model) as rows, torch.no_grad():
            found = embed_views(tiny_model, columns(tiny_model, *texts), 1)
        assert rows == [4, 4]
        self.check(tiny_model, texts, found)

    def test_different_prompts_are_not_merged(self, tiny_model, sentences):
        """Prevents one column's prompt length from being applied to the other column."""
        batch = self.padded(tiny_model, sentences[:4], sentences[:4])
        batch[0]["prompt_length"], batch[1]["prompt_length"] = torch.tensor(2), torch.tensor(3)
        with forwards_of(tiny_model) as rows:
            embed_views(tiny_model, batch, 1)
        assert rows == [4, 4]

    @staticmethod
    def padded(model, *texts):
        return [dict(model[0].tokenizer(t, padding="max_length", max_length=16, return_tensors="pt")) for t in texts]

    @staticmethod
    def check(model, texts, found):
        for column, embeddings in zip(texts, found, strict=True):
            expected = model.encode(column, convert_to_tensor=True)
            torch.testing.assert_close(embeddings, expected, rtol=1e-4, atol=1e-5)


class TestOtherFeatures:
    def test_without_token_type_ids(self, sentences):
        """Prevents RoBERTa, whose features have no token_type_ids, from failing."""
        model = build_student("roberta").train()
        batch = features(model, sentences[:6])
        assert "token_type_ids" not in batch
        with forwards_of(model) as rows:
            u, v = embed_views(model, [batch], 2)
        assert rows == [12]
        assert not torch.equal(u, v)

    def test_with_token_type_ids(self, sentences):
        """Prevents BERT's token_type_ids from keeping the length of one view."""
        model = build_student("bert").train()
        batch = features(model, sentences[:6])
        assert "token_type_ids" in batch
        u, v = embed_views(model, [batch], 2)
        assert not torch.equal(u, v)

    def test_flat_tokens(self, sentences):
        """Prevents the token stream of StaticEmbedding, which has no rows to stack, from being stacked."""
        model = build_student(STATIC)
        with forwards_of(model) as rows, torch.no_grad():
            u, v = embed_views(model, [features(model, sentences[:6])], 2)
        assert rows == [6, 6]
        torch.testing.assert_close(u, model.encode(sentences[:6], convert_to_tensor=True))
        assert torch.equal(u, v)

    def test_prompt(self, tiny_model, sentences):
        """Prevents a prompt's length, which describes the whole batch, from being stacked as if it had rows."""
        batch = tiny_model.preprocess(sentences[:4], prompt="The old ")
        with forwards_of(tiny_model) as rows:
            embed_views(tiny_model, [batch], 2)
        assert rows == [8]


class TestRowKeys:
    @pytest.mark.parametrize("family", ["bert", STATIC])
    def test_equal_for_equal_texts_only(self, family: str, sentences):
        """Prevents duplicates from being missed, or different sentences from being taken for duplicates."""
        model = build_student(family)
        texts = [*sentences, sentences[3], sentences[40]]
        keys = row_keys(features(model, texts))
        assert keys.dtype == torch.int64
        assert len(set(keys.tolist())) == len(set(texts)) == 64
        assert keys[64] == keys[3]
        assert keys[65] == keys[40]

    def test_whatever_the_padding(self, tiny_model, sentences):
        """Prevents the same sentence in a wider batch, on another process, from having another key."""
        short, long = sentences[0], f"{sentences[1]} {sentences[2]}"
        alone = row_keys(features(tiny_model, [short]))
        padded = row_keys(features(tiny_model, [short, long]))
        assert alone[0] == padded[0]

    def test_order_of_tokens(self, tiny_model):
        """Prevents a sum of tokens from taking an anagram for a duplicate."""
        keys = row_keys(features(tiny_model, ["the cat likes the dog.", "the dog likes the cat."]))
        assert keys[0] != keys[1]

    def test_left_padding(self, tiny_model, sentences):
        """Prevents decoders, which pad on the left, from having other keys in wider batches."""
        tiny_model[0].tokenizer.padding_side = "left"
        batch = features(tiny_model, [sentences[0], f"{sentences[1]} {sentences[2]}"])
        assert batch["attention_mask"][0, 0] == 0
        assert row_keys(batch)[0] == row_keys(features(tiny_model, [sentences[0]]))[0]

    def test_none_without_tokens(self):
        """Prevents features that hold no tokens from failing."""
        assert row_keys({"sentence_embedding": torch.ones(3, 4)}) is None


def test_two_losses_on_one_batch_have_their_own_views(tiny_model, sentences):
    """Prevents a second loss from comparing the one view that a first one made: consistency 0, and nothing said."""
    tiny_model.train()
    labels = torch.nn.functional.normalize(torch.randn(6, 8), dim=-1)
    for first, second in (
        (ListwiseDistillationLoss(tiny_model), RankingConsistencyLoss(tiny_model)),
        (RankingConsistencyLoss(tiny_model), ListwiseDistillationLoss(tiny_model)),
    ):
        batch = [features(tiny_model, sentences[:6])]
        values = [float(loss(batch, labels)) for loss in (first, second)]
        torch.manual_seed(0)
        again = float(second([features(tiny_model, sentences[:6])], labels))
        torch.manual_seed(0)
        assert float(second(batch, labels)) != values[0]
        assert min(values) > 0
        assert again > 0


def test_a_batch_whose_tokens_were_replaced_is_embedded_anew(tiny_model, sentences):
    """Prevents old tokens from being embedded when a feature dict is filled again."""
    tiny_model.eval()
    batch = features(tiny_model, sentences[:4])
    (before,) = embed_views(tiny_model, [batch], 1)
    batch.update(features(tiny_model, sentences[4:8]))
    (after,) = embed_views(tiny_model, [batch], 1)
    (expected,) = embed_views(tiny_model, [features(tiny_model, sentences[4:8])], 1)
    torch.testing.assert_close(after, expected)
    assert not torch.allclose(before, after)
