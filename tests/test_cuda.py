"""What only a GPU shows: devices, GradScaler, pinned memory. ``pytest -m cuda`` runs these tests."""

from __future__ import annotations

import pytest
import torch
from batches import columns, gradients, total, unit_vectors
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.util import batch_to_device

from rankcse_st import (
    CachedRankCSELoss,
    ListwiseDistillationLoss,
    RankCSELoss,
    RankingConsistencyLoss,
    TeacherEnsemble,
    TextCollator,
)
from rankcse_st.views import row_keys

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

N = 16
PARTS = ["contrastive", "consistency", "distillation"]

LOSSES = {
    "listnet": RankCSELoss,
    "listmle": lambda model: RankCSELoss(model, method="listmle"),
    "cached": lambda model: CachedRankCSELoss(model, mini_batch_size=5),
    "consistency": RankingConsistencyLoss,
    "distillation": ListwiseDistillationLoss,
    "matryoshka": lambda model: MatryoshkaLoss(model, RankCSELoss(model), [32, 16]),
}


@pytest.fixture(autouse=True)
def exact_products():
    """No TF32: CPU and GPU are to be compared."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def texts(sentences: list[str], count: int) -> list[list[str]]:
    return [sentences[k * N : (k + 1) * N] for k in range(count)]


def on(device: str, batch: list[dict]) -> list[dict]:
    return [batch_to_device(column, torch.device(device)) for column in batch]


def train(model, loss, data, folder, **arguments) -> SentenceTransformerTrainer:
    options = {
        "per_device_train_batch_size": 8,
        "max_steps": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    } | arguments
    trainer = SentenceTransformerTrainer(
        model=model, args=SentenceTransformerTrainingArguments(str(folder), **options), train_dataset=data, loss=loss
    )
    trainer.data_collator = TextCollator(trainer.data_collator)
    trainer.train()
    return trainer


class TestDevices:
    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("name", LOSSES)
    def test_equals_the_cpu(self, make_tiny_model, sentences, name: str, count: int):
        """Prevents tensors made on the wrong device, and kernels (logcumsumexp, sort, ties) that differ."""
        labels = unit_vectors(N, 32) if count == 1 else unit_vectors(N, 3, 32)
        found = {}
        for device in ("cpu", "cuda"):
            model = make_tiny_model().to(device).eval()
            loss = LOSSES[name](model)
            value = loss(on(device, columns(model, *texts(sentences, count))), labels.to(device))
            total(value).backward()
            assert total(value).device.type == device
            parts = value if isinstance(value, dict) else {"loss": value}
            found[device] = {k: v.detach().cpu() for k, v in parts.items()}, gradients(model)
        for part, value in found["cpu"][0].items():
            torch.testing.assert_close(found["cuda"][0][part], value, rtol=1e-4, atol=1e-5)
        assert total(found["cpu"][0]) > 0 or (name, count) == ("consistency", 1)
        for parameter, gradient in found["cpu"][1].items():
            torch.testing.assert_close(found["cuda"][1][parameter].cpu(), gradient, rtol=1e-2, atol=1e-4)

    @pytest.mark.parametrize("method", ["listnet", "listmle"])
    def test_explicit_lists(self, tiny_model, method: str):
        """Prevents missing entries from behaving otherwise on a GPU; ties among grades are many."""
        embeddings = list(unit_vectors(6, N, 32))
        grades = torch.randint(0, 4, (N, 5), generator=torch.Generator().manual_seed(0)).float()
        grades[::3, 1:3] = torch.nan
        loss = ListwiseDistillationLoss(tiny_model, method=method)
        expected = loss.compute_loss_from_embeddings(embeddings, grades)
        found = loss.compute_loss_from_embeddings([e.cuda() for e in embeddings], grades.cuda())
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-6)

    def test_many_rows(self, tiny_model):
        """Prevents work in ranges of rows, of another size on a GPU, from losing some of them."""
        u, v = unit_vectors(2, 3000, 64).unbind()
        labels = unit_vectors(3000, 48)
        found = {}
        for device in ("cpu", "cuda"):
            leaves = [x.to(device).requires_grad_() for x in (u, v)]
            parts = RankCSELoss(tiny_model).compute_loss_from_embeddings(leaves, labels.to(device))
            total(parts).backward()
            found[device] = [parts[name].detach().cpu() for name in PARTS], [x.grad.cpu() for x in leaves]
        torch.testing.assert_close(found["cuda"], found["cpu"], rtol=1e-3, atol=1e-6)

    def test_keys_of_rows(self, tiny_model, sentences):
        """Prevents overflow, which the keys rely on to wrap around, from differing between devices."""
        (batch,) = columns(tiny_model, sentences)
        expected = row_keys(batch)
        assert torch.equal(row_keys(batch_to_device(batch, torch.device("cuda"))).cpu(), expected)


class TestTeachers:
    def test_follow_the_student(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents teachers from scoring on the CPU while the student trains on a GPU."""
        assert tiny_teacher.device.type == "cpu"
        loss = RankCSELoss(tiny_model, tiny_teacher)
        trainer = train(tiny_model, loss, Dataset.from_dict({"sentence": sentences}), tmp_path)
        assert trainer.model.device.type == "cuda"
        assert tiny_teacher.device.type == "cuda"
        assert all(entry["distillation"] > 0 for entry in trainer.state.log_history[:4])

    def test_on_a_device_of_their_own(self, tiny_model, tiny_teacher, sentences, tmp_path):
        """Prevents a teacher that is to stay on the CPU from being moved to a full GPU."""
        loss = RankCSELoss(tiny_model, TeacherEnsemble(tiny_teacher, device="cpu"))
        trainer = train(tiny_model, loss, Dataset.from_dict({"sentence": sentences}), tmp_path)
        assert tiny_teacher.device.type == "cpu"
        assert all(entry["distillation"] > 0 for entry in trainer.state.log_history[:4])

    def test_scores_under_autocast(self, tiny_model, tiny_teacher, sentences):
        """Prevents the trainer's autocast from making false ties in the teachers' scores."""
        model = tiny_model.cuda()
        loss = RankCSELoss(model, tiny_teacher)
        batch = [column | {"text": sentences[:N]} for column in columns(model, sentences[:N])]
        with torch.autocast("cuda", dtype=torch.float16):
            vectors = loss.teachers(model, batch)
        assert vectors.dtype == torch.float32
        expected = torch.nn.functional.normalize(tiny_teacher.encode(sentences[:N], convert_to_tensor=True), dim=1)
        torch.testing.assert_close(vectors.cpu(), expected.cpu(), rtol=1e-5, atol=1e-6)


class TestTrainer:
    @pytest.mark.parametrize("precision", ["fp16", "bf16"])
    @pytest.mark.parametrize("name", ["listnet", "listmle", "cached"])
    def test_mixed_precision(self, tiny_model, sentences, tmp_path, precision: str, name: str):
        """Prevents GradScaler's factor from being lost on the way back, and half precision from giving NaN."""
        data = Dataset.from_dict({"sentence": sentences, "label": unit_vectors(64, 24).tolist()})
        before = {k: v.clone() for k, v in tiny_model.state_dict().items()}
        trainer = train(tiny_model, LOSSES[name](tiny_model), data, tmp_path, **{precision: True}, learning_rate=1e-3)
        entries = [entry for entry in trainer.state.log_history if "loss" in entry]
        assert len(entries) == 4
        for entry in entries:
            assert all(0 < entry[part] < 100 for part in PARTS)
        assert any((v.cpu() - before[k]).abs().max() > 1e-4 for k, v in tiny_model.state_dict().items())
        assert all(p.isfinite().all() for p in tiny_model.parameters())

    def test_a_scaled_loss_has_scaled_gradients(self, make_tiny_model, sentences):
        """The canary of the test above: gradients of 2¹⁶ times the loss are 2¹⁶ times those of the loss."""
        model = make_tiny_model().cuda().eval()
        loss = RankCSELoss(model)
        found = []
        for scale in (1.0, 2.0**16):
            model.zero_grad()
            batch = on("cuda", columns(model, *texts(sentences, 3)))
            (scale * total(loss(batch, unit_vectors(N, 3, 24).cuda()))).backward()
            found.append({name: gradient / scale for name, gradient in gradients(model).items()})
        for name, gradient in found[0].items():
            torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_pinned_memory(self, tiny_model, tiny_teacher, sentences, tmp_path, workers: int):
        """Prevents the strings that TextCollator adds from breaking the pinning of batches, or being lost in it."""
        loss = RankCSELoss(tiny_model, tiny_teacher)
        data = Dataset.from_dict({"sentence": sentences})
        trainer = train(tiny_model, loss, data, tmp_path, dataloader_pin_memory=True, dataloader_num_workers=workers)
        batch = next(iter(trainer.get_train_dataloader()))
        assert set(batch["sentence_text"]) <= set(sentences)
        assert not loss.teachers._said_what_is_lost

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_a_student_in_half_precision(self, make_tiny_model, sentences, dtype):
        """Prevents embeddings in half precision from being compared in half precision."""
        model: SentenceTransformer = make_tiny_model().cuda().to(dtype).train()
        parts = RankCSELoss(model)(on("cuda", columns(model, sentences[:N])), unit_vectors(N, 24).cuda())
        total(parts).backward()
        assert all(value.dtype == torch.float32 for value in parts.values())
        assert all(gradient.isfinite().all() for gradient in gradients(model).values())

    def test_evaluation_dataset(self, tiny_model, sentences, tmp_path):
        """Prevents evaluation on a dataset from failing on a GPU."""
        data = Dataset.from_dict({"sentence": sentences, "label": unit_vectors(64, 24).tolist()})
        trainer = train(tiny_model, RankCSELoss(tiny_model), data, tmp_path)
        assert trainer.evaluate(data)["eval_loss"] > 0
