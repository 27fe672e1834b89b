"""Where an LLM request spends its time, and whether prefix caching takes effect."""

VERSION = "0.1.0"
