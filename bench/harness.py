"""What every benchmark needs: processes that always end, a look at how quiet the machine is, and reports."""

import atexit
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "bench"
# A binary that is there already can be measured instead of the one that is built.
GIVEN = os.environ.get("KEDGE_BENCH_BINARY")
KEDGE = Path(GIVEN).resolve() if GIVEN else ROOT / "target" / "release" / "kedge"
QUICK = os.environ.get("QUICK", "") not in ("", "0")
# The results of full runs are committed. A short run never replaces them.
RESULTS = WORK / "quick-results" if QUICK else ROOT / "bench" / "results"
TICKS = os.sysconf("SC_CLK_TCK")

# A machine is called quiet when nobody else used more than this share of one core in the second before.
OTHERS_MAX = 0.10
# ... and the hypervisor took away less than this share of the time.
STEAL_MAX = 0.02
# During a run others may have used this share of all cores; the hypervisor's limit is the same.
DURING_MAX = 0.05

_running = []


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- what has to be there


def build(*programs):
    """The release binary, and programs of `bench/` that need no more than `rustc`."""
    if not GIVEN:
        # Cargo's own output must not stand among the results.
        command = ["cargo", "build", "--release", "-p", "kedge"]
        if subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode != 0:
            sys.exit("kedge does not build")
    WORK.mkdir(parents=True, exist_ok=True)
    for program in programs:
        source, binary = ROOT / "bench" / f"{program}.rs", WORK / program
        changed = max(each.stat().st_mtime for each in (source, ROOT / "bench" / "latencies.rs"))
        if not binary.exists() or binary.stat().st_mtime < changed:
            subprocess.run(["rustc", "-O", "--edition=2024", "-o", binary, source], cwd=WORK, check=True)


def _cargo(verb, name, *words, **how):
    """Whether it went well."""
    command = ["cargo", verb, "-q", "--manifest-path", ROOT / "bench" / name / "Cargo.toml", *words]
    return subprocess.run([str(word) for word in command], cwd=ROOT, **how).returncode == 0


def _cargo_bench(name, *words, **how):
    if not _cargo("bench", name, "--bench", name, *words, **how):
        sys.exit(f"the benchmark of bench/{name} did not end well")


def build_crate(name):
    """The benchmark of the crate `bench/NAME`. Nothing is measured with what does not pass its own tests."""
    WORK.mkdir(parents=True, exist_ok=True)
    for crate in ("common", name):
        if not _cargo("test", crate, "--release", stdout=sys.stderr):
            sys.exit(f"the tests of bench/{crate} fail: nothing is measured")
    _cargo_bench(name, "--no-run")


def run_crate(name, *words, **how):
    """What the crate's benchmark measures. The tables that it prints are part of our output, unless `how` says otherwise."""
    path = WORK / f"{name}-samples.json"
    _cargo_bench(name, "--", "--json", path, *words, **how)
    measured = json.loads(path.read_text())
    path.unlink()
    return measured


def need(program, package):
    """Installs a Debian package when its program is missing."""
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path:
        return path
    say(f"{program} is missing: installing Debian's package {package}")
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", package]):
        done = subprocess.run(sudo + command, env=environment, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"cannot install {package}: run `apt-get install {package}` as root, then try again")
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


# ---- processes


class Process:
    """A server of a benchmark. It is stopped at the latest when the benchmark ends."""

    def __init__(self, name, command, stdout=subprocess.DEVNULL, has_children=False):
        self.name, self.has_children = name, has_children
        self.log = WORK / f"{name}.log"
        with open(self.log, "w") as log:
            self.popen = subprocess.Popen([str(word) for word in command], stdout=stdout, stderr=log, cwd=WORK)
        self.pid = self.popen.pid
        _running.append(self)

    def family(self):
        """The process and those that it has started."""
        parents = {}
        for entry in Path("/proc").iterdir() if self.has_children else ():
            try:
                if entry.name.isdigit():
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
            except OSError:
                continue
        pids = [self.pid]
        for pid in pids:
            pids += parents.get(pid, [])
        return pids

    def send(self, what):
        for pid in self.family():
            try:
                os.kill(pid, what)
            except ProcessLookupError:
                continue

    def stop(self, how=signal.SIGTERM):
        if self.popen.poll() is None:
            family = self.family()
            self.send(signal.SIGCONT)
            self.popen.send_signal(how)
            try:
                self.popen.wait(30)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
            if how == signal.SIGKILL:
                # Nobody else ends the children of a process that was killed.
                for pid in family[1:]:
                    try:
                        os.kill(pid, how)
                    except ProcessLookupError:
                        continue
        if self in _running:
            _running.remove(self)
        return self.popen.returncode

    def cpu_seconds(self):
        """Processor time used so far, user and system."""
        ticks = 0
        for pid in self.family():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS

    def resident_bytes(self):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self.name} has no VmRSS")

    def died(self):
        return self.popen.poll() is not None

    def complaint(self):
        return f"{self.name} ended: {self.log.read_text()[-2000:]}"


@atexit.register
def stop_all():
    """Ends every server that still runs."""
    for process in list(_running):
        process.stop(signal.SIGKILL)


def only(*processes):
    """Lets these servers run and freezes the others: what they do behind their replies is not these ones' cost.
    `None` freezes all."""
    for other in _running:
        other.send(signal.SIGCONT if other in processes else signal.SIGSTOP)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(process, port, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.died():
            sys.exit(process.complaint())
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    sys.exit(f"{process.name} does not listen on {port}")


# ext4 without a journal does not reuse the inode of a file for five seconds after its deletion, and to create a file then searches
# all inodes that were just freed. The servers of the next run would pay for the deletion of the files of the last one.
DELETED_FILES, DELETED_S = 100, 6


def fresh_dir(name):
    path = WORK / "data" / name
    files = sum(len(names) for _, _, names in os.walk(path))
    shutil.rmtree(path, ignore_errors=True)
    if files >= DELETED_FILES:
        time.sleep(DELETED_S)
    path.mkdir(parents=True)
    return path


# ---- is the machine quiet?


def _cpu():
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle = fields[3] + fields[4]
    return {"total": sum(fields[:8]), "idle": idle, "steal": fields[7]}


def _processes():
    times = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, tail = (entry / "stat").read_text().rsplit(")", 1)
                fields = tail.split()
                times[int(entry.name)] = (head.split("(", 1)[1], int(fields[11]) + int(fields[12]))
            except (OSError, IndexError):
                continue
    return times


def quiet():
    """Looks for a second. Returns the sentences that say why the machine is not quiet; none when it is."""
    before, cpu_before = _processes(), _cpu()
    time.sleep(1)
    after, cpu_after = _processes(), _cpu()
    ours = {os.getpid()}.union(*(process.family() for process in _running))
    reasons = []
    for pid, (name, ticks) in after.items():
        share = (ticks - before.get(pid, (name, ticks))[1]) / TICKS
        if pid not in ours and share > OTHERS_MAX:
            reasons.append(f"{name} ({pid}) uses {share:.0%} of a core")
    total = max(cpu_after["total"] - cpu_before["total"], 1)
    steal = (cpu_after["steal"] - cpu_before["steal"]) / total
    if steal > STEAL_MAX:
        reasons.append(f"the hypervisor takes {steal:.0%} of the processor")
    return reasons


class Steal:
    """The time that the hypervisor takes from the machine."""

    def __init__(self):
        self.before = _cpu()

    def share(self):
        """The part of the time of all processors since the beginning."""
        now = _cpu()
        return round((now["steal"] - self.before["steal"]) / max(now["total"] - self.before["total"], 1), 4)


class Watch:
    """How quiet the machine is: a look before the run, and what others and the hypervisor took while it ran."""

    def __init__(self):
        self.not_quiet = quiet()
        for reason in self.not_quiet:
            say(f"the machine is not quiet: {reason}")
        self.cpu, self.ours = _cpu(), self._our_ticks()

    def _our_ticks(self):
        times = os.times()
        running = 0
        for process in _running:
            try:
                running += process.cpu_seconds()
            except OSError:
                continue
        return (times.user + times.system + times.children_user + times.children_system + running) * TICKS

    def _read(self):
        cpu, ours = _cpu(), self._our_ticks()
        total = max(cpu["total"] - self.cpu["total"], 1)
        busy = total - (cpu["idle"] - self.cpu["idle"]) - (cpu["steal"] - self.cpu["steal"])
        others = max(busy - (ours - self.ours), 0)
        return {
            "others_share": round(others / total, 3),
            "steal_share": round((cpu["steal"] - self.cpu["steal"]) / total, 3),
        }

    def end(self):
        """What every result says of its run: where it ran, what else ran there, and whether it was a quick one."""
        during = self._read()
        if during["others_share"] > DURING_MAX or during["steal_share"] > STEAL_MAX:
            self.not_quiet.append(
                f"during the run others used {during['others_share']:.0%} of the machine and the hypervisor took "
                f"{during['steal_share']:.0%}"
            )
            say(f"the machine was not quiet: {self.not_quiet[-1]}")
        return {"machine": machine(), "not_quiet": self.not_quiet, "during": during, "quick": QUICK}


def machine():
    """What the figures were measured on."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    kind = subprocess.run(["stat", "-f", "-c", "%T", WORK], capture_output=True, text=True).stdout.strip()
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "kernel": platform.release(),
        "filesystem": kind,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def opening(run, memory=False, filesystem=True):
    """The first sentences of a report, from what `Watch.end` said."""
    host = run["machine"]
    parts = [f"{host['cores']} cores", host["processor"]]
    if memory:
        parts.append(f"{host['memory_bytes'] / (1 << 30):.0f} GiB of memory")
    parts.append(f"Linux {host['kernel']}")
    if filesystem:
        parts.append(host["filesystem"])
    state = "NOT quiet: " + "; ".join(run["not_quiet"]) if run["not_quiet"] else "quiet"
    return f"{', '.join(parts)}. The machine was {state}.{' A quick run.' if run['quick'] else ''}"


# ---- figures


def median(values):
    return statistics.median(values)


class Bars:
    """The lines at the end: `bar NAME MEASURED LIMIT met|MISSED`."""

    def __init__(self):
        self.rows = []

    def at_least(self, name, measured, limit, unit=""):
        self._add(name, measured, ">=", limit, unit, measured >= limit)

    def at_most(self, name, measured, limit, unit=""):
        self._add(name, measured, "<=", limit, unit, measured <= limit)

    def absent(self, name, sign, limit, unit, why):
        """What should have been measured and was not."""
        row = {"name": name, "measured": None, "sign": sign, "limit": limit, "unit": unit, "ok": False, "why": why}
        self.rows.append(row)

    def _add(self, name, measured, sign, limit, unit, ok):
        row = {"name": name, "measured": round(measured, 3), "sign": sign, "limit": limit, "unit": unit, "ok": ok}
        self.rows.append(row)

    def lines(self):
        for row in self.rows:
            verdict = "met" if row["ok"] else "MISSED"
            if row["measured"] is None:
                yield f"bar {row['name']} - {row['sign']}{row['limit']:g}{row['unit']} MISSED ({row['why']})"
                continue
            yield f"bar {row['name']} {row['measured']:.2f}{row['unit']} {row['sign']}{row['limit']:g}{row['unit']} {verdict}"


def write_results(name, title, data, markdown, bars):
    """Writes NAME.json, NAME.md and NAME.svg, and prints the bars as the last lines of standard output."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    document = dict(data, bars=bars.rows)
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    lines = "\n".join(bars.lines())
    (RESULTS / f"{name}.md").write_text(f"# {title}\n\n{markdown}\n## Bars\n\n```\n{lines}\n```\n")
    (RESULTS / f"{name}.svg").write_text(svg(title, bars.rows))
    say(f"results: {RESULTS.relative_to(ROOT)}/{name}.json, .md, .svg")
    print(lines, flush=True)


def table(head, rows):
    """A table in Markdown."""
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    out += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(out) + "\n"


def svg(title, rows):
    """One bar per row: how far the measured figure is from its limit; the limit is the line in the middle."""
    height, left, middle, scale = 26, 270, 520, 220
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="960" height="{80 + height * len(rows)}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="16" y="28" font-size="17">{title}</text>',
        '<text x="16" y="48" fill="#555">right of the line is better than the limit; one step is a factor of two</text>',
    ]
    import math

    for at, row in enumerate(rows):
        y = 64 + at * height
        known = row["measured"] is not None
        measured, limit = max(row["measured"] or 0, 1e-9), max(row["limit"], 1e-9)
        better = 1 if not known else measured / limit if row["sign"] == ">=" else limit / measured
        length = max(-1.0, min(1.0, math.log2(better) / 2)) * scale
        x = middle if length >= 0 else middle + length
        colour = "#2a7f4f" if row["ok"] else "#b3392f"
        label = f'{measured:.2f}{row["unit"]}' if known else "not measured"
        label += f' (limit {row["sign"]} {row["limit"]:g}{row["unit"]})'
        label = label.replace("<", "&lt;").replace(">", "&gt;")
        out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{row["name"]}</text>')
        out.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{max(abs(length), 1):.1f}" height="16" fill="{colour}"/>')
        out.append(f'<text x="{middle + scale + 8}" y="{y + 14}" fill="#333">{label}</text>')
    bottom = 64 + height * len(rows)
    out.append(f'<line x1="{middle}" y1="60" x2="{middle}" y2="{bottom}" stroke="#333"/>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
