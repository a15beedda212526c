"""Completion for shells, generated from the arguments."""

from argparse import ArgumentParser, Namespace, _SubParsersAction

from berth.answer import Answer
from berth.errors import CommandError

_BASH = """_berth() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command="" each
  for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $each in -*) ;; *) command=$each; break ;; esac
  done
  case $command in
{cases}
    *) COMPREPLY=($(compgen -W "{commands}" -- "$word")) ;;
  esac
}}
complete -o default -F _berth berth kubectl-berth
"""
_CASE = '    {name}) case $word in -*) COMPREPLY=($(compgen -W "{options}" -- "$word")) ;; *) COMPREPLY=() ;; esac ;;'


def commands_of(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    """Return the sub-commands by name."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, _SubParsersAction):
            return dict(action.choices)
    return {}


def _options_of(parser: ArgumentParser) -> list[str]:
    """Return a command's long options."""
    return sorted(name for action in parser._actions for name in action.option_strings if name.startswith("--"))  # noqa: SLF001


def completion(given: Namespace, parser: ArgumentParser) -> Answer:
    """Return a shell's completion script, as an Answer."""
    commands = {name: _options_of(each) for name, each in commands_of(parser).items()}
    return Answer({"shell": given.shell}, raw=script(given.shell, commands))


def script(shell: str, commands: dict[str, list[str]]) -> str:
    """Return the script that a shell has to source.

    Raises:
        CommandError: the shell is unknown.
    """
    if shell == "fish":
        lines = [f"complete -c berth -n __fish_use_subcommand -f -a {name}" for name in commands]
        for name, options in commands.items():
            seen = f"'__fish_seen_subcommand_from {name}'"
            lines += [f"complete -c berth -n {seen} -l {option.removeprefix('--')}" for option in options]
        return "\n".join(lines) + "\n"
    cases = "\n".join(_CASE.format(name=name, options=" ".join(options)) for name, options in commands.items())
    bash = _BASH.format(cases=cases, commands=" ".join(commands))
    if shell == "bash":
        return bash
    if shell == "zsh":
        return f"autoload -U +X bashcompinit && bashcompinit\n{bash}"
    message = f"{shell} isn't known: bash, zsh or fish."
    raise CommandError(message)
