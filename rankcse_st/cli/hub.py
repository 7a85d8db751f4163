"""``--push-to-hub``: whether an upload can succeed, and the upload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankcse_st.cli.console import fail, say

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def check_hub() -> None:
    """Find out before training what would make the upload fail after it.

    Raises:
        ValueError: If the Hub is switched off, or there is no token for it.
    """
    from huggingface_hub import get_token
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        raise ValueError("--push-to-hub needs the network, but HF_HUB_OFFLINE is set.")
    if not get_token():
        raise ValueError("--push-to-hub needs a token of the Hugging Face Hub: call 'hf auth login' first.")


def push(model: SentenceTransformer, repository: str, *, private: bool, saved: Path) -> None:
    """Upload a model that is in the folder ``saved`` already; if it fails, say so and where the model is."""
    try:
        url = model.push_to_hub(repository, private=private or None, exist_ok=True)
    except Exception as error:
        raise fail(f"The model is saved in {saved}, but the upload failed: {error}", 1) from error
    say(f"Uploaded: {url}")
