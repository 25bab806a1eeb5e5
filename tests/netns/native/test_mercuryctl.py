# SPDX-License-Identifier: GPL-2.0
"""mercuryctl, end to end: what it says is what tc says, and what it does is what tc would do."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator

import pyte
import pytest

from lib import checks, tc
from lib.netns import Pair
from lib.traffic import Tcp, Udp, mark, transfer

_TREE = pathlib.Path(__file__).parents[3]
PROGRAM = pathlib.Path(os.environ.get("MERCURYCTL", _TREE / "build/userspace/cli/mercuryctl"))
DONE, DIFFERS, USAGE, FAILED = range(4)


@pytest.fixture(autouse=True)
def program() -> None:
    assert PROGRAM.exists(), f"build {PROGRAM} first"


def command(pair: Pair, *words: str) -> list[str]:
    return ["ip", "netns", "exec", pair.a.name, str(PROGRAM), *words]


def run(pair: Pair, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(pair, *words), capture_output=True, text=True, timeout=60)


def said(pair: Pair, *words: str, status: int = DONE) -> str:
    done = run(pair, *words)
    assert done.returncode == status, f"{words}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def read(pair: Pair, *words: str, status: int = DONE) -> dict:
    return json.loads(said(pair, *words, "--json", status=status))


def send_something(pair: Pair) -> None:
    """Datagrams in some bands and a job with a limit, TCP, and unmarked ones; then silence."""
    pair.a.tc("class change dev eth0 classid 1:fc02 mercury weight 7 limit 9")
    pair.a.tc("class change dev eth0 classid 1:804 mercury limit 3")
    flows = [Udp(pair, mark(layer, job)) for layer, job in ((1, 0), (5, 1), (4, 2), (0, 0))]
    for flow in flows:
        flow.send(30)
    transfer([Tcp(pair.a, pair.b, pair.B4, 100_000, mark(3), seed=1)])
    checks.wait_until_empty(pair.a)


# --- Figures -------------------------------------------------------------------


def test_the_qdisc_is_what_tc_shows(pair: Pair) -> None:
    pair.add("rate 20mbit bands 8 jobs 5 ce_threshold 3ms deadline 0:3-5 3ms deadline 7 none")
    send_something(pair)
    (device,) = read(pair, "stats")["devices"]
    (ours,) = device["qdiscs"]
    shown = tc.qdisc(pair.a)
    # tc's own: what it is, and what follows from the options
    for key in ("kind", "root", "refcnt"):
        shown.pop(key)
    options = shown.pop("options")
    for key in ("split_gso_active", "default_deadline_ns", "classes"):
        options.pop(key)
    assert ours.pop("options") == options
    assert ours.pop("parent") == "root"
    assert len(ours.pop("classes")) > 5
    assert ours["packets"] > 100
    assert ours == shown


def test_the_classes_are_what_tc_shows(pair: Pair) -> None:
    pair.add("rate 2mbit deadline 0 1us")  # slower than any machine sends: there are drops
    send_something(pair)
    (device,) = read(pair, "stats")["devices"]
    ours = {one["classid"]: one for one in device["qdiscs"][0]["classes"]}
    shown = tc.classes(pair.a)
    assert ours.keys() == shown.keys()
    assert sum(one["drops"] for one in ours.values()) > 0
    for handle, of_tc in shown.items():
        for key in ("bytes", "packets", "drops", "overlimits", "qlen"):
            assert ours[handle][key] == of_tc[key], (handle, key)
        for key in ("job", "band", "weight"):
            assert str(ours[handle].get(key)) == str(of_tc.get(key)), (handle, key)
        limit = ours[handle].get("limit", "absent")
        assert str("none" if limit is None else limit) == of_tc.get("limit", "absent")
    counted = [one for one in ours.values() if "band" in one and one["packets"]]
    assert counted
    for one in counted:
        # What came in one GSO packet waited once, and counts as several.
        assert 0 < sum(bucket["packets"] for bucket in one["sojourn"]) <= one["packets"]
        assert one["deadline_met"] + one["deadline_missed"] == one["packets"]
    # But for the pure ACKs that found it empty.
    assert ours["1:1"]["deadline_missed"] >= 29
    assert ours["1:ffff"]["default"] is True


def test_all_counters_of_a_class_in_json(pair: Pair) -> None:
    """Field by field where this tc has JSON for classes."""
    newer = sorted(pathlib.Path(os.environ.get("HOME", "/"), ".cache/mercury/newer-tc").rglob("tc"))
    if not newer:
        pytest.skip("no newer tc: tests/plugin/newer-tc fetches one")
    pair.add("rate 20mbit deadline 0 1us")
    send_something(pair)
    text = subprocess.run(
        [newer[0], "-n", pair.a.name, "-j", "-s", "class", "show", "dev", "eth0"],
        capture_output=True, text=True, check=True,
    ).stdout
    if not text.startswith("["):
        pytest.skip("this tc has no JSON for classes either")
    shown = {one["handle"]: one for one in json.loads(text)}
    (device,) = read(pair, "stats")["devices"]
    for one in device["qdiscs"][0]["classes"]:
        of_tc = shown[one["classid"]]
        flat = {**of_tc, **of_tc["stats"]}
        common = one.keys() & flat.keys()
        assert len(common) > 5
        assert {k: one[k] for k in common} == {k: flat[k] for k in common}


def test_status_and_jobs(pair: Pair) -> None:
    pair.a.ip("link add d0 type dummy")
    pair.add("rate 20mbit jobs 3")
    send_something(pair)
    devices = {one["dev"]: one for one in read(pair, "status")["devices"]}
    assert devices.keys() == {"eth0", "d0"}
    assert devices["eth0"]["root"] == "mercury"
    assert devices["eth0"]["qdiscs"][0]["options"]["rate"] == 2_500_000
    assert (devices["d0"]["up"], devices["d0"]["qdiscs"]) == (False, [])
    jobs = {one["job"]: one for one in read(pair, "jobs")["jobs"]}
    assert {number: one["weight"] for number, one in jobs.items()} == {0: 1, 1: 1, 2: 7}
    assert jobs[2]["limit"] == 9
    assert jobs[1]["packets"] == 30
    text = said(pair, "jobs")
    assert re.search(r"^eth0 +2 +7 +9 +[\d.]+ [KM]?i?B +\d+ +\d+ +\d+  -     -$", text, re.MULTILINE)
    assert re.search(r"^eth0 +mercury 1: +20mbit +0/3", said(pair, "status"), re.MULTILINE)


def test_text_of_stats_bounds_percentiles_honestly(pair: Pair) -> None:
    pair.add("rate 20mbit")
    Udp(pair, mark(1)).send(50)
    checks.wait_until_empty(pair.a)
    text = said(pair, "stats", "--dev", "eth0")
    row = re.search(r"^1:1 +0 +0 +50 .*", text, re.MULTILINE)
    assert row
    assert re.fullmatch(r".* <[0-9.]+[um]s +<[0-9.]+[um]s", row[0])


def test_nothing_to_show(pair: Pair) -> None:
    assert said(pair, "stats") == "no mercury qdisc here\n"
    assert said(pair, "jobs") == "no job has sent anything\n"
    assert read(pair, "stats")["devices"] == []


def test_several_below_mq(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(queues=2)
    pair.a.tc("qdisc replace dev eth0 root handle 7: mq")
    pair.a.tc("qdisc replace dev eth0 parent 7:1 handle 1: mercury")
    pair.a.tc("qdisc replace dev eth0 parent 7:2 handle 2: mercury")
    (device,) = read(pair, "stats")["devices"]
    places = {q["handle"]: q["parent"] for q in device["qdiscs"]}
    assert places == {"1:": "7:1", "2:": "7:2"}


# --- With mercuryd -------------------------------------------------------------


class Daemon(threading.Thread):
    """Answers one client as docs/hints.md says, with the answers that it is given."""

    def __init__(self, path: pathlib.Path, *answers: dict | bytes) -> None:
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        self._socket.listen()
        self._answers = answers
        self.asked: list[dict] = []
        self.start()

    def run(self) -> None:
        client, _ = self._socket.accept()
        for answer in self._answers:
            self.asked.append(json.loads(client.recv(65536)))
            client.send(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        client.recv(65536)


_WELCOME = {"type": "hello", "version": 1, "daemon": "mercuryd 9.9"}
_STATUS = {
    "type": "status", "daemon": "mercuryd 9.9", "uptime_s": 3723, "clients": 2, "messages": 9,
    "errors": 1, "sockets": 8,
    "devices": [{"name": "eth0", "qdiscs": 1, "managed": True, "problem": "rate is not as set"}],
    "jobs": [{"number": 1, "name": "resnet50", "user": 0, "clients": 2, "steps": 5, "classes": []}],
    "left_out": 0,
}  # fmt: skip


@pytest.fixture
def daemon_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("MERCURY_SOCKET", str(tmp_path / "hints.sock"))
    return tmp_path / "hints.sock"


def test_names_from_the_daemon(pair: Pair, daemon_path: pathlib.Path) -> None:
    pair.add("")
    send_something(pair)
    daemon = Daemon(daemon_path, _WELCOME, _STATUS)
    found = read(pair, "jobs")
    assert {one["job"]: one["name"] for one in found["jobs"]} == {0: None, 1: "resnet50", 2: None}
    assert found["daemon"]["uptime_s"] == 3723
    assert [one["type"] for one in daemon.asked] == ["hello", "status"]
    daemon_path.unlink()
    Daemon(daemon_path, _WELCOME, _STATUS)
    assert re.search(r"^eth0 +1 +1 .* root +resnet50$", said(pair, "jobs"), re.MULTILINE)


def test_status_of_the_daemon(pair: Pair, daemon_path: pathlib.Path) -> None:
    assert "mercuryd is not running" in said(pair, "status")
    assert read(pair, "status")["daemon"] is None
    Daemon(daemon_path, _WELCOME, _STATUS)
    text = said(pair, "status")
    assert "mercuryd 9.9: up 01:02:03, 2 clients, 1 jobs, 8 sockets marked, 1 errors" in text
    assert "  eth0: rate is not as set" in text


@pytest.mark.parametrize("answers", [
    [b"{"],
    [{"type": "error", "code": "version", "message": "speaks 7 only", "versions": [7]}],
    [_WELCOME, b"\xff"],
    [_STATUS],
])  # fmt: skip
def test_a_daemon_that_makes_no_sense(
    pair: Pair, daemon_path: pathlib.Path, answers: list
) -> None:
    """It is named, and the kernel's part is shown all the same."""
    Daemon(daemon_path, *answers)
    done = run(pair, "status", "--json")
    assert done.returncode == DONE
    assert f"mercuryd at {daemon_path}" in done.stderr
    assert json.loads(done.stdout)["daemon"] is None


# --- Over time -----------------------------------------------------------------


def test_watch_and_its_count(pair: Pair) -> None:
    pair.add("")
    text = said(pair, "stats", "--json", "--watch", "--interval", "20ms", "--count", "3")
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == 3
    assert lines[0]["time_ns"] < lines[1]["time_ns"] < lines[2]["time_ns"]


def test_trace_adds_up_to_what_was_sent(pair: Pair) -> None:
    pair.add("rate 5mbit")
    trace = subprocess.Popen(
        command(pair, "trace", "eth0", "--interval", "50ms"), stdout=subprocess.PIPE, text=True
    )
    first = json.loads(trace.stdout.readline())
    assert first["qdiscs"][0]["classes"] == [] or first["qdiscs"][0]["packets"] == 0
    Udp(pair, mark(2)).send(100)
    checks.wait_until_empty(pair.a)
    packets, sojourns, seen_waiting = 0, 0, False
    while packets < 100:
        line = json.loads(trace.stdout.readline())
        for one in line["qdiscs"][0]["classes"]:
            if one["classid"] == "1:2":
                packets += one["packets"]
                sojourns += sum(bucket["packets"] for bucket in one["sojourn"])
                seen_waiting = seen_waiting or one["qlen"] > 0
    trace.send_signal(signal.SIGINT)
    assert trace.wait(timeout=10) == DONE
    assert (packets, sojourns, seen_waiting) == (100, 100, True)


# --- Configuration -------------------------------------------------------------


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Iterator[Callable[[str], str]]:
    def file(text: str) -> str:
        path = tmp_path / "mercury.toml"
        path.write_text(text)
        return str(path)

    yield file


def test_apply_makes_it_so_and_diff_says_what_is_left(pair: Pair, write: Callable) -> None:
    path = write(
        '[[device]]\nname = "eth0"\nrate = "20mbit"\nbands = 8\nkey = "dscp"\nmask = 0x7\n'
        'job_mask = 0x38\nack_first = false\ndeadlines = ["0:3-5 2ms", "7 none"]\n'
    )
    (change,) = read(pair, "diff", path, status=DIFFERS)["changes"]
    assert change["dev"] == "eth0"
    assert change["replaces"] is not None
    assert "mercury" not in tc.qdiscs(pair.a)[0]["kind"]
    assert "rate 20mbit" in said(pair, "apply", path)
    shown = tc.qdisc(pair.a)["options"]
    assert (shown["rate"], shown["bands"], shown["key"]) == (2_500_000, 8, "dscp")
    assert (shown["mask"], shown["job_mask"], shown["ack_first"]) == ("0x7", "0x38", False)
    assert [(d["job"], d["first"], d["last"]) for d in shown["deadlines"]][:1] == [(0, 3, 5)]
    assert said(pair, "diff", path) == said(pair, "apply", path) == ""
    assert read(pair, "diff", path) == {"changes": [], "missing": []}


def test_apply_below_every_queue_with_weights(make_pair: Callable[..., Pair], write: Callable) -> None:
    pair = make_pair(queues=3)
    eth0 = '[[device]]\nname = "eth0"\njobs = 4\n'
    file = write(eth0 + 'mq = true\nrate = "1gbit"\nweights = ["1 4", "2-3 2"]')
    changes = read(pair, "diff", file, status=DIFFERS)["changes"]
    assert [one["kind"] for one in changes] == ["mq", "mercury", "mercury", "mercury"]
    assert "mercury instead of" in said(pair, "apply", file)
    assert read(pair, "diff", file)["changes"] == []
    qdiscs = [one for one in tc.qdiscs(pair.a) if one["kind"] == "mercury"]
    assert sorted(one["parent"] for one in qdiscs) == ["1:1", "1:2", "1:3"]
    for qdisc in qdiscs:
        major = int(qdisc["handle"].rstrip(":"), 16)
        classes = tc.classes(pair.a, qdisc["handle"])
        weights = [classes[tc.job(number, major)]["weight"] for number in (1, 2, 3)]
        assert weights == ["4", "2", "2"]
    assert "queues" not in wrong(pair)

    pair.a.tc("qdisc del dev eth0 parent 1:2")
    (mended,) = read(pair, "apply", file)["changes"]
    assert mended["parent"] == "1:2" and mended["error"] is None
    file = write(eth0 + 'weights = ["1 4"]')
    said(pair, "apply", file)
    assert tc.qdisc(pair.a, read(pair, "stats")["devices"][0]["qdiscs"][0]["handle"])["root"]
    assert read(pair, "diff", file)["changes"] == []


def test_apply_keeps_the_packets_that_wait(pair: Pair, write: Callable) -> None:
    pair.add("rate 1mbit")
    flow = Udp(pair, mark(2))
    flow.send(50)
    path = write('[[device]]\nname = "eth0"\nrate = "100mbit"\n')
    (change,) = read(pair, "diff", path, status=DIFFERS)["changes"]
    assert change["replaces"] is None
    assert change["options"] == [{"name": "rate", "from": "1mbit", "to": "100mbit"}]
    said(pair, "apply", path)
    checks.wait_until_empty(pair.a)
    assert tc.classes(pair.a)["1:2"]["packets"] == 50
    assert tc.classes(pair.a)["1:2"]["drops"] == 0


def test_apply_goes_back_to_defaults_but_leaves_unnamed_deadlines(
    pair: Pair, write: Callable
) -> None:
    pair.add("limit 77 deadline 3 5ms")
    path = write('[[device]]\nname = "eth0"\n')
    assert "limit 77 -> 100000" in said(pair, "apply", path)
    options = tc.qdisc(pair.a)["options"]
    assert (options["limit"], len(options["deadlines"])) == (100000, 1)
    path = write('[[device]]\nname = "eth0"\ndeadlines = []\n')
    assert "deadlines [3 5ms] -> []" in said(pair, "apply", path)
    assert tc.qdisc(pair.a)["options"]["deadlines"] == []


def test_a_file_with_mistakes_changes_nothing(pair: Pair, write: Callable) -> None:
    path = write('[[device]]\nname = "eth0"\njobs = 99\nlimt = 3\n')
    for name in ("diff", "apply"):
        done = run(pair, name, path)
        assert done.returncode == USAGE
        assert f"{path}:3: device.jobs: must be 1 to 62" in done.stderr
        assert f"{path}:4: device.limt: there is no such setting here" in done.stderr
    assert all(q["kind"] != "mercury" for q in tc.qdiscs(pair.a))


def test_one_missing_device_does_not_keep_another_from_it(pair: Pair, write: Callable) -> None:
    path = write('[[device]]\nname = "eth7"\n[[device]]\nname = "eth0"\n')
    done = run(pair, "apply", path)
    assert done.returncode == FAILED
    assert "there is no device eth7" in done.stderr
    assert tc.qdiscs(pair.a)[0]["kind"] == "mercury"


def test_who_may_not_is_told_by_the_kernel(pair: Pair, write: Callable) -> None:
    path = write('[[device]]\nname = "eth0"\n')
    os.chmod(os.path.dirname(path), 0o755)
    unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    words = command(pair, "apply", path)
    done = subprocess.run(
        [*words[:4], *unprivileged, *words[4:]], capture_output=True, text=True
    )
    assert done.returncode == FAILED
    assert "eth0: Operation not permitted" in done.stderr


# --- Wrong words ---------------------------------------------------------------


@pytest.mark.parametrize("words", [
    [],
    ["fly"],
    ["status", "--fast"],
    ["stats", "eth0"],
    ["stats", "--interval", "1s"],
    ["stats", "--watch", "--interval", "soon"],
    ["stats", "--watch", "--interval", "1us"],
    ["stats", "--watch", "--count", "-1"],
    ["trace"],
    ["apply"],
    ["diff"],
    ["apply", "/nonexistent.toml"],
    ["plan"],
    ["plan", "vgg16", "--job", "256"],
    ["plan", "vgg16", "--classes", "0"],
    ["plan", "vgg16", "--iteration", "soon"],
    ["top", "--interval", "0s"],
])  # fmt: skip
def test_wrong_words(pair: Pair, words: list[str]) -> None:
    done = run(pair, *words)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert done.stderr


@pytest.mark.parametrize("words, sentence", [
    (["stats", "--dev", "eth9"], "there is no device eth9; there are lo, eth0"),
    (["trace", "eth9"], "there is no device eth9"),
    (["trace", "eth0"], "eth0 has no mercury qdisc"),
    (["top", "eth9"], "there is no device eth9"),
    (["top"], "no device has a mercury qdisc"),
    (["plan", "/nonexistent"], "/nonexistent"),
])  # fmt: skip
def test_what_cannot_be_done(pair: Pair, words: list[str], sentence: str) -> None:
    done = run(pair, *words)
    assert done.returncode == FAILED
    assert done.stdout == ""
    assert sentence in done.stderr


def test_top_without_a_terminal(pair: Pair) -> None:
    pair.add("")
    assert "needs a terminal" in run(pair, "top").stderr


def test_help_and_version(pair: Pair) -> None:
    assert said(pair, "--version").startswith("mercuryctl ")
    text = said(pair, "--help")
    for name in _COMMANDS:
        assert name in text
        assert "--help" in said(pair, name, "--help")


_SOURCE = _TREE / "userspace/cli"
_COMMANDS = ("status", "stats", "jobs", "top", "trace", "doctor", "diff", "apply", "plan", "adopt")


def complete(line: str) -> set[str]:
    """What bash offers for the last word of a line."""
    script = (
        f"source {_SOURCE}/completion/mercuryctl; COMP_WORDS=({line});"
        ' [[ $1 != *" " ]] || COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1));'
        ' _mercuryctl; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script, "-", line], capture_output=True, text=True)
    assert not done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("name", _COMMANDS)
def test_man_page_and_completion_have_every_option(pair: Pair, name: str) -> None:
    options = set(re.findall(r"--[a-z][a-z-]+", said(pair, name, "--help")))
    assert complete(f"mercuryctl {name} --") == options
    man = (_SOURCE / "mercuryctl.1").read_text().replace("\\-", "-")
    assert f".B {name}\n" in man
    for option in options - {"--help"}:
        assert option in man, option


def test_completion_of_words() -> None:
    assert complete("mercuryctl st") == {"status", "stats"}
    assert set(_COMMANDS) < complete("mercuryctl ")
    assert "lo" in complete("mercuryctl top ")
    assert "lo" in complete("mercuryctl stats --dev ")
    assert complete("mercuryctl stats --interval ") == set()


def test_plan(pair: Pair) -> None:
    plan = read(pair, "plan", "vgg16", "--job", "3")
    assert [one["band"] for one in plan["classes"]] == list(range(len(plan["classes"])))
    assert [one["mark"] for one in plan["classes"]] == [0x30001, 0x30002, 0x30003]
    times = [one["deadline_ns"] for one in plan["classes"]]
    assert times == sorted(times)
    assert "fc6" in said(pair, "plan", "vgg16")


# --- Doctor --------------------------------------------------------------------


def wrong(pair: Pair) -> dict[str, dict]:
    done = run(pair, "doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (DONE if found["good"] else DIFFERS)
    return {one["check"]: one for one in found["findings"] if not one["good"]}


def mend(pair: Pair, finding: dict) -> None:
    assert finding["why"]
    subprocess.run(
        ["ip", "netns", "exec", pair.a.name, "sh", "-ec", finding["mend"]], check=True
    )


def test_doctor_until_all_is_well(pair: Pair) -> None:
    """What it says mends it, literally."""
    pair.a.sysctl("ipv4/tcp_limit_output_bytes", 4096)
    found = wrong(pair)
    assert found.keys() == {"notsent_lowat", "limit_output", "device"}
    mend(pair, found["notsent_lowat"])
    mend(pair, found["limit_output"])
    # A veth says that it has 10 Gbit/s.
    assert found["device"]["mend"].startswith("tc qdisc replace dev eth0 root handle 1: mercury rate ")
    mend(pair, {**found["device"], "mend": "tc qdisc replace dev eth0 root mercury"})
    found = wrong(pair)
    assert found.keys() == {"rate"}
    assert found["rate"]["dev"] == "eth0"
    mend(pair, found["rate"])
    assert wrong(pair) == {}
    assert said(pair, "doctor").endswith("all is well\n")


def test_doctor_on_gso_and_the_rate(pair: Pair) -> None:
    pair.add("rate 100mbit no_split_gso")
    found = wrong(pair)
    assert "5.24ms" in found["gso"]["what"]
    mend(pair, found["gso"])
    assert "gso" not in wrong(pair)
    pair.change("rate 10gbit")
    assert "does not reach" in wrong(pair)["rate"]["what"]


def test_doctor_on_queues_without_mercury(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(queues=4)
    pair.a.tc("qdisc replace dev eth0 root handle 7: mq")
    pair.a.tc("qdisc replace dev eth0 parent 7:2 mercury rate 1gbit")
    found = wrong(pair)
    assert "3 of 4 queues" in found["queues"]["what"]
    mend(pair, found["queues"])
    assert "queues" not in wrong(pair)
    assert [q["kind"] for q in tc.qdiscs(pair.a)].count("mercury") == 4


def test_doctor_finds_no_plugin(pair: Pair) -> None:
    done = subprocess.run(
        ["env", "TC_LIB_DIR=/nonexistent", *command(pair, "doctor")], capture_output=True, text=True
    )
    assert done.returncode == DIFFERS
    assert "tc does not know mercury" in done.stdout


def test_doctor_on_a_device_that_is_down(pair: Pair) -> None:
    pair.add("rate 1gbit")
    pair.a.ip("link set eth0 down")
    mend(pair, wrong(pair)["up"])
    assert "up" not in wrong(pair)


# --- Top -----------------------------------------------------------------------


class Terminal:
    """mercuryctl top in a terminal of its own, and what is on its screen."""

    def __init__(self, pair: Pair, *words: str, columns: int = 80, lines: int = 24) -> None:
        self.raw = b""
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._fd, child = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(child)
        self._child = child
        self.process = subprocess.Popen(
            command(pair, "top", "--interval", "50ms", *words),
            stdin=child, stdout=child, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def read(self, wait: float = 0.2) -> None:
        while select.select([self._fd], [], [], wait)[0]:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.raw += data
            self._stream.feed(data)
            wait = 0

    def until(self, pattern: str) -> list[str]:
        """The lines of the screen once one of them matches."""
        for _ in range(200):
            self.read()
            if any(re.search(pattern, line) for line in self.screen.display):
                return self.screen.display
        raise AssertionError(f"no {pattern!r} in\n" + "\n".join(self.screen.display))

    def ended(self) -> int:
        status = self.process.wait(timeout=20)
        self.read(0)
        return status

    def is_restored(self) -> bool:
        shown = self.raw.rindex(b"\033[?1049l") > self.raw.rindex(b"\033[?1049h")
        cursor = self.raw.rindex(b"\033[?25h") > self.raw.rindex(b"\033[?25l")
        return shown and cursor and termios.tcgetattr(self._child) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)
        os.close(self._child)


@pytest.fixture
def terminal(pair: Pair) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def make(*words: str, **options: int) -> Terminal:
        terminals.append(Terminal(pair, *words, **options))
        return terminals[-1]

    yield make
    for one in terminals:
        one.close()


def test_top_at_80x24(pair: Pair, terminal: Callable[..., Terminal]) -> None:
    pair.add("rate 2mbit jobs 3 deadline 2 1us")
    flows = [Udp(pair, mark(layer, job)) for layer, job in ((1, 0), (3, 0), (2, 1), (0, 0))]
    top = terminal()
    top.until("JOB BAND")
    for flow in flows:
        flow.send(300)
    top.until(r"^  0    2 .*\[#+ *\].* <[0-9.]+m?s .*<[0-9.]+m?s +[1-9]")
    lines = top.until(r"^ +- +rest")  # the last one that sends
    assert re.match(r"mercuryctl top  eth0 1: \(1 of 1\)  jobs active [1-3] of 3 ", lines[0])
    assert re.match(r"sent [0-9.]+ [MK]bit/s of 2mbit \[#+ *\]  [0-9.]+ packets/s", lines[1])
    assert re.match(r"queued [1-9]\d* packets, ", lines[2])
    assert lines[5].split()[:3] == ["JOB", "BAND", "RATE"]
    rows = [line.split()[:2] for line in lines[6:] if line.strip()]
    assert rows == [["0", "all"], ["0", "0"], ["0", "2"], ["1", "all"], ["1", "1"], ["-", "rest"]]
    top.press("q")
    assert top.ended() == DONE
    assert top.is_restored()


def test_top_does_not_flicker(pair: Pair, terminal: Callable[..., Terminal]) -> None:
    """Never cleared as a whole: each frame is written over the one before."""
    pair.add("")
    top = terminal()
    top.until("JOB BAND")
    start = top.raw.index(b"\033[?25l")
    while top.raw.count(b"\033[H", start) < 5:
        top.read()
    frames = top.raw[start:]
    assert b"\033[2J" not in frames
    assert b"\033[H\033[J" not in frames


def test_top_with_more_bands_than_lines(pair: Pair, terminal: Callable[..., Terminal]) -> None:
    pair.add("rate 10mbit")
    for layer in range(1, 40):
        Udp(pair, mark(layer)).send(1)
    checks.wait_until_empty(pair.a)
    top = terminal()
    # All are idle: of the bands there is nothing to say.
    lines = top.until(r"\.\.\. and 39 classes more")
    assert [line.split()[1] for line in lines[6:8]] == ["all", "rest"]


def test_top_follows_the_size_of_the_terminal(
    pair: Pair, terminal: Callable[..., Terminal]
) -> None:
    pair.add("")
    Udp(pair, mark(1)).send(1)
    top = terminal()
    narrow = top.until(r"\[ *\]")[7]
    top.resize(120, 40)
    top.until(r"\[ {50,}\]")
    top.resize(40, 10)
    top.until("mercuryctl top")
    assert len(narrow) == 80
    top.press("q")
    assert top.ended() == DONE


def test_top_goes_to_the_next_device(pair: Pair, terminal: Callable[..., Terminal]) -> None:
    pair.a.ip("link add d0 type dummy", "link set d0 up")
    pair.add("")
    pair.a.tc("qdisc add dev d0 root handle 5: mercury")
    top = terminal("d0")
    top.until(r"d0 5: \(\d of 2\)")
    top.press("n")
    top.until(r"eth0 1: \(\d of 2\)")
    top.press("n")
    top.until(r"d0 5: \(\d of 2\)")
    pair.a.ip("link del d0")
    top.until(r"eth0 1: \(1 of 1\)")
    pair.a.tc("qdisc del dev eth0 root")
    top.until("no mercury qdisc here")
    top.press("q")
    assert top.ended() == DONE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_top_restores_the_terminal_on_a_signal(
    pair: Pair, terminal: Callable[..., Terminal], number: int
) -> None:
    pair.add("")
    top = terminal()
    top.until("JOB BAND")
    if number == signal.SIGINT:
        top.press("\x03")
    else:
        top.process.send_signal(number)
    assert top.ended() == DONE
    assert top.is_restored()
