"""MTEB task classes. Importing a module of this package imports ``mteb``: do so inside functions only."""
