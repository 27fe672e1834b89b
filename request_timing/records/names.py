"""The names of experiments and of their arms, as they stand in a record.

Who measures and who reads a record agree here. Nothing is imported, so that reading one loads
nothing that measures. An arm that ends in a slash is followed by a size.
"""

from __future__ import annotations

LENGTH, OUTPUT, REPLAY = "length", "output", "replay"
LADDER, POSITION, MINIMUM = "ladder", "position", "minimum"
DEPTH, WORKLOAD, RESTORE = "depth", "workload", "restore"

# What --only takes.
DEFAULT_EXPERIMENTS = ("length", "output", "cache")
EXPERIMENT_NAMES = (*DEFAULT_EXPERIMENTS, "ladder", "position", "minimum", "depth", "workload",
                    "restore", "fit")
# What an experiment's figures are made from, beside its own requests.
NEEDS = {"fit": ("length",), "workload": ("length", "depth")}

# ladder: its arms in the order of the table, and what they are called there.
LABELS = {
    "repeat": "identical repeat", "append": "appended turn", "other_question": "another question",
    "third_question": "a third question", "head_changed": "head changed",
    "middle_changed": "middle changed", "tail_cut": "tail cut off",
    "two_in_turn": "two in turn", "after_1": "back after 1", "after_2": "back after 2",
    "after_4": "back after 4",
}
AFTER = "after_"  # and how many other conversations came in between

# position: an arm a place of the changed token, in percent of the document, and an arm a
# granularity of the stamp in front, as strftime has it.
PLACES = (0, 25, 50, 75, 100)
STAMPS = {"second": "%Y-%m-%d %H:%M:%S", "minute": "%Y-%m-%d %H:%M", "hour": "%Y-%m-%d %H:00",
          "day": "%Y-%m-%d"}

PRIME = "prime/"  # depth: a prefix is read for the first time
COLD_SHAPE, HIT_SHAPE = "cold/", "hit/"  # workload: a shape for the first time, and again

# restore: the ways a prompt comes back, and the prompts that take its slot; a prefix before and
# after a pause.
RECOMPUTE, SLOT, HOST, DISK, OTHER = "recompute/", "slot/", "host/", "disk/", "other/"
FIRST, PAUSE = "first/", "pause/"
NO_DISK = "no_disk: the server saves no slot"  # how a note of a sample begins
