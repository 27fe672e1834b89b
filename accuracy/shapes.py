"""*minimum* from time alone, on the truth server's real clock; a part of `make accuracy`.

Each constant must come out within 5 %; a server without a cache must give no minimum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from accuracy.rows import Row, show
from conftest import at, no_patience
from request_timing.experiments.calibration import calibrate
from request_timing.experiments.lab import Lab, Settings
from request_timing.experiments.minimum import minimum
from request_timing.findings.minimum import Prefix, found
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from truth_server import truth

BAR = 0.05
TRUTH: dict[str, Any] = {"prefill_s_per_token": 50e-6, "decode_s_per_token": 0.001,
                         "fixed_s": 0.005, "noise_sigma": 0.05, "report_cached": False}
SETTINGS = Settings(experiments=(), lengths=(1,), outputs=(1,), context=8000, turns=1, repeats=1,
                    seed=3)


def measured(**server: Any) -> Prefix | None:
    """What *minimum* finds on a server that reports no counts."""
    with truth(**TRUTH | server) as known:
        endpoint = OpenAIEndpoint(at(f"{known.url}/v1"), key=None, model="truth", provider=None)
        calibrate(endpoint, (20, 200), no_patience())
        return found(list(minimum(Lab(backend=endpoint, settings=SETTINGS))))


def rows() -> Iterator[Row]:
    """The constants of two servers, and none of a third."""
    for least, block in ((1024, 128), (512, 64)):
        prefix = measured(cache="prefix", minimum_tokens=least, block_tokens=block)
        shared, step = (None, None) if prefix is None else (prefix.shared, prefix.step)
        for name, true, value in (("shortest prefix", least, shared),
                                  ("step of reuse", block, step)):
            yield Row(figure=f"{name} from time, tokens", truth=true, measured=value,
                      bar="within 5 %",
                      held=value is not None and abs(value - true) <= BAR * true)
    prefix = measured(cache="off")
    yield Row(figure="shortest prefix without a cache", truth=None,
              measured=None if prefix is None else prefix.shared, bar="none found",
              held=prefix is not None and prefix.shared is None)


if __name__ == "__main__":
    sys.exit(show([*rows()]))
