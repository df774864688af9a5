"""The unit of systemd and the recipe of the image."""

import re
import shutil
import sys

import pytest
from conftest import KEDGE, REPOSITORY, run

UNIT = REPOSITORY / "deploy" / "systemd" / "kedge.service"
IMAGE = REPOSITORY / "deploy" / "docker" / "Dockerfile"
# The largest exposure that the unit may have, of 10 (systemd-analyze security).
EXPOSURE_MAX = 2.0

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


def installed(directory):
    """The unit with the binary that is tested instead of the installed one."""
    unit = directory / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/kedge", str(KEDGE)))
    return unit


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path):
    done = run("systemd-analyze", "verify", "--man=no", installed(tmp_path))
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert (done.returncode, complaints) == (0, [])


@needs_systemd
def test_unit_is_hardened(tmp_path):
    limit = f"--threshold={int(EXPOSURE_MAX * 10)}"
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", limit, installed(tmp_path))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_server_takes_the_flags_of_the_unit(tmp_path):
    [start] = re.findall(r"^ExecStart=/usr/local/bin/kedge serve (.*)$", UNIT.read_text(), re.M)
    file = tmp_path / "kedge.toml"
    file.write_text('password = "a password of tests"\n')
    done = run(KEDGE, "config", *start.replace("/etc/kedge/kedge.toml", str(file)).split())
    assert done.returncode == 0, done.stderr


def test_unit_leaves_a_failed_sync_to_the_operator():
    code = re.search(r"with exit code (\d+)", (REPOSITORY / "docs" / "reference" / "io-errors.md").read_text()).group(1)
    assert f"RestartPreventExitStatus={code}\n" in UNIT.read_text()


def test_image_is_built_as_the_linter_wants():
    done = run(f"{sys.prefix}/bin/hadolint", "--failure-threshold", "style", IMAGE)
    assert done.returncode == 0, done.stdout


def test_image_has_the_pinned_toolchain():
    channel = re.search(r'^channel = "(.*)"', (REPOSITORY / "rust-toolchain.toml").read_text(), re.M).group(1)
    text = IMAGE.read_text()
    assert f"FROM rust:{channel}-" in text and f"RUSTUP_TOOLCHAIN={channel}\n" in text
