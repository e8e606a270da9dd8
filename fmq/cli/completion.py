"""`fmq completion`: print a script with which a shell completes verbs, options and their values.

Put the line of your shell into its file, and open a new shell:

    source <(fmq completion bash)        # ~/.bashrc
    source <(fmq completion zsh)         # ~/.zshrc, after compinit
    fmq completion fish | source         # ~/.config/fish/config.fish
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from fmq.cli.codes import FINE
from fmq.cli.described import Verb, verbs_of
from fmq.cli.output import Output

# The loop finds the verb. Files are completed where nothing else is (`-o default`).
BASH = """\
_fmq() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" verb="fmq" words="" each
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$verb $each" in
            {verbs}) verb="$verb $each" ;;
        esac
    done
    case "$verb ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
        *)
            case "$verb" in
{words}
            esac
            case "$word" in
                -*) case "$verb" in
{options}
                esac ;;
            esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _fmq fmq
"""
ZSH = """\
autoload -Uz bashcompinit && bashcompinit
"""
FISH = "complete -c fmq"


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    # Without the arguments in `common`: the output is a script.
    parser = verbs.add_parser(
        "completion",
        help="what a shell needs to complete the verbs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    parser.set_defaults(run=run, format="auto")


def run(args: argparse.Namespace, output: Output) -> int:
    verbs = [*verbs_of(args.parser)]
    texts = {"bash": _bash, "zsh": lambda verbs: ZSH + _bash(verbs), "fish": _fish}
    sys.stdout.write(texts[args.shell](verbs))
    return FINE


def _bash(verbs: list[Verb]) -> str:
    named = [(name, verb) for verb in verbs for name in _names(verb)]
    values, words, options = [], [], []
    for name, verb in named:
        for each in verb.arguments:
            if each.choices and each.options:
                cases = "|".join(f'"{name} {option}"' for option in each.options)
                values.append(f'        {cases}) words="{" ".join(each.choices)}" ;;')
        options.append(_case(name, " ".join(o for each in verb.arguments for o in each.options)))
        words.append(_case(name, " ".join(_first_words(verb, verbs))))
    return BASH.format(
        verbs="|".join(f'"{name}"' for name, verb in named if verb.words),
        values="\n".join(values),
        words="\n".join(filter(None, words)),
        options="\n".join(filter(None, options)),
    )


def _names(verb: Verb) -> list[str]:
    """Return the names of a verb as they are typed, from `fmq` on. An action of a verb with several
    names has several, too.
    """
    return [" ".join(("fmq", *words)) for words in (verb.words, *verb.other_words)]


def _case(name: str, words: str) -> str:
    return f'                "{name}") words="{words}" ;;' if words else ""


def _first_words(verb: Verb, verbs: list[Verb]) -> Iterator[str]:
    """Yield what may follow a verb: its actions, or the values of its first argument."""
    for below in verbs:
        if below.words and below.words[:-1] == verb.words:
            yield below.words[-1]
            yield from (words[-1] for words in below.other_words if len(words) == 1)
    first = next((each for each in verb.arguments if not each.options), None)
    yield from first.choices if first else ()


def _fish(verbs: list[Verb]) -> str:
    lines = []
    for verb in verbs:
        if not verb.words:
            continue
        *above, _ = verb.words
        siblings = [each.words[-1] for each in verbs if each.words and [*each.words[:-1]] == above]
        seen = _seen(verb, len(above))
        when = (
            f"{_seen(verb, len(above))}; and not __fish_seen_subcommand_from {' '.join(siblings)}"
            if above
            else "__fish_use_subcommand"
        )
        for name in dict.fromkeys([verb.words[-1], *(w[-1] for w in verb.other_words)]):
            lines.append(_fish_line(when, "-f", "-a", name, "-d", verb.help))
        inside = seen + (f"; and __fish_seen_subcommand_from {verb.words[-1]}" if above else "")
        for each in verb.arguments:
            names = [
                part
                for option in each.options
                for part in ("-l" if option.startswith("--") else "-s", option.lstrip("-"))
            ]
            choices = ["-f", "-a", " ".join(each.choices)] if each.choices else []
            if names or choices:
                takes = ["-r"] if names and each.value else []
                lines.append(_fish_line(inside, *names, *takes, *choices, "-d", each.help))
    return "".join(lines)


def _seen(verb: Verb, depth: int) -> str:
    names = dict.fromkeys(words[0] for words in (verb.words, *verb.other_words))
    assert depth in (0, 1)
    return "__fish_seen_subcommand_from " + " ".join(names)


def _fish_line(when: str, *words: str) -> str:
    return f"{FISH} -n {shlex.quote(when)} {shlex.join(words)}\n"
