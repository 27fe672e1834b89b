"""The providers that api_timing.py knows by name. A new provider is one row.

Base URLs and key variables are the vendors' documented ones. A model is named only where it is
this tool's default; elsewhere models change by the month, and /models is asked.
"""

from __future__ import annotations

from typing import NamedTuple


class Provider(NamedTuple):
    """Where a provider is, which environment variable holds its key (None: it needs none)."""

    base_url: str
    key_variable: str | None = None
    default_model: str | None = None
    # Where only some models stream: those that do, and how the names of those that don't begin.
    streaming_models: tuple[str, ...] = ()
    not_streaming: tuple[str, ...] = ()
    limit_parameter: str = "max_tokens"


DEFAULT = "ai-builder"

PROVIDERS = {
    "ai-builder": Provider("https://space.ai-builders.com/backend/v1", "AI_BUILDER_TOKEN",
                           "deepseek", ("deepseek", "grok-4-fast"), ("kimi-k3", "gemini")),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY",
                       limit_parameter="max_completion_tokens"),
    "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "moonshot": Provider("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "llama-server": Provider("http://127.0.0.1:8080/v1"),
    "vllm": Provider("http://127.0.0.1:8000/v1"),
    "sglang": Provider("http://127.0.0.1:30000/v1"),
    "ollama": Provider("http://127.0.0.1:11434/v1"),
    "lm-studio": Provider("http://127.0.0.1:1234/v1"),
}
