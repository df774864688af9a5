"""Programs of others that are measured: installed ones, or those at given paths."""

import os
import shutil
import subprocess
import sys

from harness import need

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def variable(name):
    """The environment variable that names the program."""
    return f"KEDGE_BENCH_{name.upper()}"


def binary(name, program, package=None):
    """The path in KEDGE_BENCH_NAME, else the installed program. If it is missing, Debian's `package` is installed; without one, None."""
    given = os.environ.get(variable(name))
    if given and not shutil.which(given):
        sys.exit(f"{variable(name)}={given} is no program")
    if given:
        return os.path.abspath(shutil.which(given))
    return shutil.which(program, path=PATH) or (need(program, package) if package else None)


def version(path):
    """The first line of the program's own description of its version."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return said.splitlines()[0]
