"""The process that holds a local model: run as a file, never imported by the package.

It reads one line of JSON from stdin (``{"path", "context", "parallel", "threads", "api_key", "sys_path"}``), loads the model,
answers with one line (``{"address": str}`` or ``{"error": str}``) and serves until its stdin is closed: it cannot outlive the
kernel, however that ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def main() -> None:
    """Load, answer, serve, end."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # llama.cpp prints; only our answer may reach the pipe
    wanted = json.loads(sys.stdin.readline())
    sys.path.append(wanted["sys_path"])
    try:
        server = _load(wanted)
        answer: dict[str, str] = {"address": server.listening_address}
    except (RuntimeError, ImportError, AttributeError, TypeError) as error:  # a bad file; or another xllamacpp than ours
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    if "address" in answer:
        sys.stdin.read()
    os._exit(0)  # without the clean-up of a running answer


def _load(wanted: dict[str, Any]) -> Any:
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = wanted["path"]
    settings = {
        "model_alias": {"local"},
        "hostnames": ["127.0.0.1"],
        "port": 0,
        "api_keys": [wanted["api_key"]],  # other people, and web pages, can reach a loopback port
        "ui": False,
        "n_parallel": wanted["parallel"],
        "n_ctx": wanted["context"] * wanted["parallel"],
        "cache_ram_mib": 0,  # the default may take 8 GB
        "warmup": False,
        "verbosity": 0,
    }
    threads = {"n_threads": wanted["threads"]}
    for part, values in ((params, settings), (params.cpuparams, threads), (params.cpuparams_batch, threads)):
        for name, value in values.items():
            setattr(part, name, value)
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
