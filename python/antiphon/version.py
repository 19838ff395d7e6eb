"""The version of this package, in one place; alone in its file so that the build reads it without importing."""

__version__ = "0.1.0"
