"""``python -m rankcse_st.cli``, for example under ``torchrun -m``."""

from __future__ import annotations

from rankcse_st.cli import app

app(prog_name="rankcse-st")
