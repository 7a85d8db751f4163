"""Two real processes with different data give the loss, and every gradient, of one process with all of it."""

from __future__ import annotations

import math
import time
from typing import Any

import processes
import pytest
import torch
import torch.multiprocessing as mp
from processes import CHECKS, WORLD_SIZE
from sentence_transformers import SentenceTransformerTrainer

pytestmark = [
    pytest.mark.slow,
    # One worker of pytest-xdist starts the processes for all of these tests; the first one waits for them.
    pytest.mark.xdist_group("processes"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process found; a hang is an error."""
    folder = tmp_path_factory.mktemp("processes")
    context = mp.get_context("spawn")
    started = [context.Process(target=processes.run, args=(rank, str(folder))) for rank in range(WORLD_SIZE)]
    for process in started:
        process.start()
    deadline = time.monotonic() + 500
    for process in started:
        process.join(timeout=max(0, deadline - time.monotonic()))
    hanging = [process for process in started if process.is_alive()]
    for process in hanging:
        process.kill()
    results = [torch.load(folder / f"rank-{rank}.pt") for rank in range(WORLD_SIZE)]
    assert not hanging, f"The processes hang after {list(results[0])}."
    return results


def result(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """What the processes found in one check, after a look at whether they came through it."""
    for rank, everything in enumerate(found):
        assert name in everything, f"Process {rank} did not get as far as {name!r}."
        assert "error" not in everything[name], f"Process {rank}:\n{everything[name]['error']}"
    return [everything[name] for everything in found]


class TestGathering:
    @pytest.mark.parametrize("name", CHECKS)
    def test_equals_one_process(self, found, name: str):
        """Field report 17: positives or teachers' scores mislabelled, or a mean that is not over all rows."""
        shares = result(found, name)
        whole = processes.evaluate(CHECKS[name], rank=None, gather=False)
        for part, expected in whole["parts"].items():
            mean = torch.stack([share["parts"][part] for share in shares]).mean()
            assert expected > 1e-3
            torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-9)
        largest = max(gradient.abs().max() for gradient in whole["gradients"].values())
        assert largest > 1e-3
        for share in shares:
            assert share["gradients"].keys() >= whole["gradients"].keys()
            for parameter, expected in whole["gradients"].items():
                torch.testing.assert_close(
                    share["gradients"][parameter], expected, rtol=1e-6, atol=1e-9 * largest.item()
                )

    def test_without_gathering_it_is_another_loss(self, found):
        """The canary of the test above: each process against its own rows only gives other gradients."""
        shares = result(found, "without gathering")
        whole = processes.evaluate(CHECKS["rankcse, listnet"], rank=None, gather=False)
        for part, expected in whole["parts"].items():
            mean = torch.stack([share["parts"][part] for share in shares]).mean()
            assert abs(mean - expected) > 1e-3
        name = "0.model.encoder.layer.0.attention.self.value.weight"
        expected = whole["gradients"][name]
        assert (shares[0]["gradients"][name] - expected).abs().max() > 0.01 * expected.abs().max()

    def test_gathering_in_one_process_changes_nothing(self):
        """Prevents ``gather_across_devices=True`` from failing, or counting twice, where there is one process."""
        check = CHECKS["rankcse, hard negatives"]
        plain = processes.evaluate(check, rank=None, gather=False)
        gathered = processes.evaluate(check, rank=None, gather=True)
        assert plain["parts"] == gathered["parts"]
        assert all(torch.equal(gradient, gathered["gradients"][k]) for k, gradient in plain["gradients"].items())

    def test_unequal_batches(self, found):
        """Prevents a hang, or a wrong result, where the last batches of an epoch differ: an error on both processes."""
        for share in result(found, "unequal batches"):
            assert set(share) == {"rankcse", "consistency", "distillation"}
            for message in share.values():
                assert "[6, 5] rows" in message
                assert "dataloader_drop_last=True" in message
                assert "gather_across_devices=False" in message


class TestGradientCheckpointing:
    def test_changes_nothing(self, found):
        """Field report 18: "marked ready twice"; with ``use_reentrant=False`` it works and changes nothing."""
        for share in result(found, "checkpointing"):
            assert not isinstance(share["checkpointing"], str), share["checkpointing"]
            assert share["plain"].keys() == share["checkpointing"].keys()
            for name, expected in share["plain"].items():
                torch.testing.assert_close(share["checkpointing"][name], expected, rtol=1e-6, atol=1e-9)

    def test_the_reentrant_kind_fails(self, found):
        """The canary of the test above: checkpointing was on, and of the other kind it is the error of the report."""
        for share in result(found, "checkpointing"):
            if not isinstance(share["reentrant"], str):
                pytest.skip("This torch copes with reentrant checkpointing.")
            assert "ready only once" in share["reentrant"]

    def test_the_processes_stay_together(self, found):
        """Prevents gradients that are not averaged, so that each process trains a model of its own."""
        one, other = result(found, "checkpointing")
        start = processes.student().state_dict()
        for name, value in one["checkpointing"].items():
            assert torch.equal(value, other["checkpointing"][name])
        assert any(not torch.equal(value, start[name]) for name, value in one["checkpointing"].items())


class TestTrainer:
    def one_process(self, tmp_path, **options) -> SentenceTransformerTrainer:
        return processes.training(tmp_path, 16, 16, gather=False, **options)

    def test_two_processes_train_the_model_of_one(self, found, tmp_path):
        """Prevents any of it (wrapping, gathering, averaging, logging) from going wrong in the real trainer."""
        trainer = self.one_process(tmp_path)
        expected = trainer.model.state_dict()
        start = processes.student().state_dict()
        assert any((value - start[name]).abs().max() > 1e-3 for name, value in expected.items())
        for share in result(found, "training"):
            assert share["wrapped"] == "DistributedDataParallel"
            for name, value in expected.items():
                torch.testing.assert_close(share["weights"][name], value, rtol=1e-6, atol=1e-8)
        by_step = [entry for entry in trainer.state.log_history if "loss" in entry]
        for logged, entry in zip(result(found, "training")[0]["logged"], by_step, strict=True):
            for part in ("loss", "contrastive", "consistency", "distillation"):
                assert logged[part] == pytest.approx(entry[part], abs=2e-4)

    def test_without_gathering_it_is_another_model(self, found, tmp_path):
        """The canary of the test above."""
        one, other = (share["without gathering"] for share in result(found, "training"))
        expected = self.one_process(tmp_path).model.state_dict()
        assert all(torch.equal(value, other[name]) for name, value in one.items())
        assert any((value - expected[name]).abs().max() > 1e-4 for name, value in one.items())

    def test_live_teachers(self, found, tmp_path):
        """Field report 19: a teacher replaced by the student when DDP wraps it, or scoring the wrong rows."""
        expected = self.one_process(tmp_path, live=True).model.state_dict()
        for share in result(found, "training"):
            for name, value in expected.items():
                torch.testing.assert_close(share["live"][name], value, rtol=1e-5, atol=1e-6)
            assert all(entry["distillation"] > 0 for entry in share["live logged"][:1])

    def test_a_short_last_batch(self, found):
        """Prevents an epoch that ends unevenly from hanging: an error that names the training argument."""
        for share in result(found, "training"):
            assert len(share["uneven logged"]) == 2  # The short batch is dropped, by the default of several processes.
            assert "dataloader_drop_last=True" in (share["said"] or "")

    def test_evaluation_on_an_odd_number_of_rows(self, found):
        """Prevents evaluation, whose last batches are filled up, from being refused or hanging."""
        assert all(math.isfinite(share["eval_loss"]) for share in result(found, "training"))
