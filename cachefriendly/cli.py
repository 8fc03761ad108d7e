"""The ``cachefriendly`` command: subcommands print for people, or one JSON object for machines."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cachefriendly.errors import CacheFriendlyError

__all__ = ["main"]

_DEMO = "demo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0, or 1 when a check failed, or 2 when the command itself could not run.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (CacheFriendlyError, OSError, ValueError) as error:
        print(f"cachefriendly {options.command}: {error}", file=sys.stderr)
        return 2
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cachefriendly",
        description="Live KV cache for local transformers models behind LangChain and LlamaIndex.",
        epilog="examples:\n  cachefriendly demo\n  cachefriendly doctor\n"
        "  cachefriendly size demo --tokens 4000",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=importlib.metadata.version("cachefriendly")
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_doctor(commands)
    _add_size(commands)
    _add_templates(commands)
    return parser


def _add_command(commands: Any, name: str, about: str, examples: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    return command


def _add_demo(commands: Any) -> None:
    command = _add_command(
        commands,
        "demo",
        "run a LangChain agent and a LlamaIndex chat engine, with reuse and without",
        "  cachefriendly demo\n  cachefriendly demo --json",
    )
    command.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from cachefriendly.demo_run import compare, demo_engines, installed_demos
    from cachefriendly.demo_view import print_comparison, watch_calls

    demos = installed_demos()
    for reason in demos.missing:
        print(f"left out: {reason}", file=sys.stderr)
    with watch_calls("Loading the demo model"):
        engines = demo_engines()
    done = []
    for scenario in demos.scenarios:
        done.append(compare(scenario, *engines, watch_calls))
        if not options.json:
            print_comparison(done[-1])
    if options.json:
        print(json.dumps({"demos": [comparison.to_dict() for comparison in done]}))
    return int(not all(comparison.identical for comparison in done))


def _add_doctor(commands: Any) -> None:
    command = _add_command(
        commands,
        "doctor",
        "check the installation, and a model if one is named",
        "  cachefriendly doctor\n"
        "  cachefriendly doctor demo\n"
        "  cachefriendly doctor ./my-model --json",
    )
    command.add_argument(
        "model", nargs="?", help="local path or hub id; 'demo' is the demo model. No weights read"
    )
    command.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from cachefriendly.doctor import check_installation, check_model

    checks = list(check_installation())
    if options.model:
        checks += check_model(_resolve(options.model))
    if options.json:
        rows = [{name: getattr(check, name) for name in check.__slots__} for check in checks]
        print(json.dumps({"checks": rows}))
    else:
        for check in checks:
            print(f"{check.verdict:5}{check.name:18}{check.found}")
            if check.advice:
                print(f"{'':23}{check.advice}")
    return int(any(check.verdict == "fail" for check in checks))


def _add_size(commands: Any) -> None:
    command = _add_command(
        commands,
        "size",
        "say how many bytes the keys and values of a model take",
        "  cachefriendly size demo\n"
        "  cachefriendly size ./my-model --dtype bfloat16 --tokens 8000 --tokens 32000\n"
        "  cachefriendly size ./my-model --json",
    )
    command.add_argument("model", help="local path or hub id; 'demo' is the demo model")
    command.add_argument("--dtype", default="auto", help="torch dtype name (default: the model's)")
    command.add_argument(
        "--tokens",
        type=_positive,
        action="append",
        metavar="N",
        help="length of a conversation; may be given several times (default: 1000 and 8000)",
    )
    command.set_defaults(run=_size)


def _size(options: argparse.Namespace) -> int:
    from cachefriendly.size import kv_size

    size = kv_size(_resolve(options.model), dtype=options.dtype)
    lengths = options.tokens or [1000, 8000]
    if options.json:
        print(json.dumps(size.to_dict(lengths)))
        return 0
    print(f"{size.architecture}, {size.dtype}: {size.bytes_per_token:,} bytes per token")
    for layer in size.layers:
        reach = f"the last {layer.window} tokens" if layer.window else "all tokens"
        print(f"  {layer.count} layers x {layer.bytes_per_token:,} bytes, {reach}")
    for tokens in lengths:
        print(f"  {tokens:,} tokens: {size.bytes_at(tokens) / 2**20:,.1f} MiB")
    return 0


def _add_templates(commands: Any) -> None:
    command = _add_command(
        commands,
        "templates",
        "say what a chat template does to kept tokens when a conversation goes on",
        "  cachefriendly templates\n"
        "  cachefriendly templates ./my-model\n"
        "  cachefriendly templates ./a-folder-of-jinja-files --json",
    )
    command.add_argument(
        "model",
        nargs="?",
        default=_DEMO,
        help="model path or hub id, a .jinja file or a folder of them (default: the demo model)",
    )
    command.set_defaults(run=_templates)


def _templates(options: argparse.Namespace) -> int:
    from cachefriendly.templates_view import (
        findings_table,
        surveyed,
        template_of_model,
        templates_in,
    )

    path = Path(options.model)
    if path.suffix == ".jinja" or (
        path.is_dir() and any(path.glob("*.jinja")) and not any(path.glob("*.json"))
    ):
        named = templates_in(path)
    else:
        named = [(options.model, template_of_model(_resolve(options.model)))]
    findings = list(surveyed(named))
    if options.json:
        print(json.dumps({"templates": [finding.to_dict() for finding in findings]}))
    else:
        print(findings_table(findings))
    return int(any(finding.error for finding in findings))


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a number of tokens")
    return value


def _resolve(model: str) -> str:
    """Path of the model that was named; the demo model is converted when it is used first."""
    if model == _DEMO:
        from cachefriendly.demo import convert_demo_model

        return str(convert_demo_model())
    from cachefriendly.engine.loader import ModelSource

    ModelSource(model).check_path()
    return model
