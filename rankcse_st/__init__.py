"""RankCSE (Liu et al., ACL 2023) for sentence-transformers."""

from __future__ import annotations

__version__ = "0.1.0"
