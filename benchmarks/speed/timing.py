"""Timing variants of one thing side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy.stats import bootstrap


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that a clock shows what has been done and not what has been asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleaved(
    variants: Mapping[str, Callable[[], object]], repetitions: int, device: torch.device, warmup: int = 2
) -> dict[str, list[float]]:
    """Seconds of each repetition of each variant, the variants taking turns so that all meet the same disturbances."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for repetition in range(-warmup, repetitions):
        for name, step in variants.items():
            synchronize(device)
            started = time.perf_counter()
            step()
            synchronize(device)
            if repetition >= 0:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def differences(seconds: list[float], baseline: list[float]) -> dict[str, float]:
    """Median milliseconds above the baseline of the same turn, with a 95 % bootstrap interval."""
    added = 1e3 * (np.array(seconds) - np.array(baseline))
    low, high = interval(added)
    return {
        "median_ms": 1e3 * median(seconds),
        "baseline_median_ms": 1e3 * median(baseline),
        "added_ms": float(np.median(added)),
        "low": low,
        "high": high,
    }


def interval(values: np.ndarray) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median; nothing but the median where values are few or all the same."""
    if len(values) < 3 or values.std() == 0:
        return float(np.median(values)), float(np.median(values))
    found = bootstrap((values,), np.median, rng=np.random.default_rng(0), method="percentile").confidence_interval
    return float(found.low), float(found.high)


def ratios(seconds: Mapping[str, list[float]], baseline: str) -> dict[str, dict[str, Any]]:
    """Each variant's median ratio to the baseline of the same turn, with a 95 % bootstrap interval."""
    result = {}
    for name, values in seconds.items():
        ratio = np.array(values) / np.array(seconds[baseline])
        low, high = interval(ratio)
        result[name] = {"median_ms": 1e3 * median(values), "ratio": float(np.median(ratio)), "low": low, "high": high}
    return result
