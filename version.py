"""The version of this tool, as --version and every record give it."""

VERSION = "0.1.0"
