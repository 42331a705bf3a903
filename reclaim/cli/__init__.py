"""The `reclaim` command. One command a file; each imports what it needs when it runs.

Exit codes: 0 done; 1 a check fell short; 2 bad input or usage, told in one line;
130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

__all__ = ["main"]

_BAD_INPUT = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    try:
        from reclaim.cli.app import Abort, UsageError, app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        return _complain("the command needs typer and rich: pip install 'reclaim[cli]'")
    from reclaim.errors import InputError, TraceExistsError
    from reclaim.traces import TraceWarning

    def show_warning(message: Warning | str, *_: object, **__: object) -> None:
        print(f"reclaim: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        warnings.simplefilter("always", TraceWarning)
        try:
            given = list(sys.argv[1:] if arguments is None else arguments)
            code = app(args=given or ["--help"], standalone_mode=False)
        except UsageError as error:
            return _complain(f"{error.format_message()} (see --help)")
        except Abort:
            return _INTERRUPTED
        except (InputError, TraceExistsError) as error:
            return _complain(str(error))
        except BrokenPipeError:  # `reclaim policies | head`: nobody reads on, and that is no error
            sys.stderr.close()
            return 0
        except OSError as error:
            return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return code if isinstance(code, int) else 0


def _complain(message: str) -> int:
    print(f"reclaim: {' '.join(message.split())}", file=sys.stderr)
    return _BAD_INPUT
