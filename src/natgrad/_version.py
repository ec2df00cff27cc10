"""The version of natgrad, read by the build and by ``natgrad.__version__``."""

__version__ = "0.2.0.dev0"
