# SPDX-License-Identifier: GPL-2.0
"""The test bed itself: what a command sees in a guest, and what comes back.

Nothing here loads sch_mercury, so that the test bed can be judged apart from
it. Each boot of UML takes about a second, of QEMU about 20.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
TESTBED = TREE / "scripts" / "testbed"

TIMEOUT, FAILED, CRASHED = 124, 125, 134

Result = subprocess.CompletedProcess[str]


def run(script: str, *words: object, **options: object) -> Result:
    """Runs a script of the test bed; a hang of the test bed itself fails the test."""
    command = [str(TESTBED / script), *(str(word) for word in words)]
    settings = {"capture_output": True, "text": True, "timeout": 240, "cwd": TREE}
    return subprocess.run(command, **(settings | options))  # type: ignore[call-overload]


def uml(*words: object, **options: object) -> Result:
    return run("uml", "--no-module", *words, **options)


def shell(line: str) -> list[str]:
    return ["--", "bash", "-c", line]


@pytest.fixture(scope="session", autouse=True)
def kernel() -> Path:
    """Built before the first test, whose time limit would not do for that."""
    result = run("uml-kernel", timeout=3600)
    assert result.returncode == 0, result.stderr
    return Path(result.stdout.strip())


@pytest.fixture
def own_tmp() -> Iterator[Path]:
    """A TMPDIR of its own: other guests may be running on this machine."""
    with tempfile.TemporaryDirectory(prefix="tb.") as folder:
        yield Path(folder)


def traces(folder: Path) -> set[str]:
    """What a run with this TMPDIR has there, and its processes."""
    processes = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/" in command:
            processes.add(command)
    return processes | {str(path) for path in folder.iterdir()}


# --- the command --------------------------------------------------------------


def test_arguments_arrive_unchanged() -> None:
    words = ["a b", "c'd", 'e"f', "", "*", "$HOME", "back\\slash", "two\nlines", "-x", "a,b=c", "ü"]
    result = uml("--", "printf", "<%s>", *words)
    assert result.stdout == "".join(f"<{word}>" for word in words)
    assert result.returncode == 0


def test_command_needs_no_separator() -> None:
    assert uml("echo", "-n", "--timeout").stdout == "--timeout"


@pytest.mark.parametrize("status", [0, 1, 3, 255])
def test_exit_status_is_returned(status: int) -> None:
    assert uml(*shell(f"exit {status}")).returncode == status


def test_success_is_quiet() -> None:
    result = uml("--", "true")
    assert (result.stdout, result.stderr) == ("", "")


def test_signal_ends_command() -> None:
    assert uml(*shell("kill -KILL $$")).returncode == 128 + signal.SIGKILL


def test_missing_command() -> None:
    result = uml("--", "no-such-command", "x")
    assert result.returncode == 127
    assert "no command 'no-such-command'" in result.stderr


def test_builtin_of_the_shell_is_no_command() -> None:
    assert uml("--", "give_up", "x").returncode == 127


def test_stdout_and_stderr_stay_apart() -> None:
    result = uml(*shell("echo out; echo err >&2"))
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_long_output_is_whole_and_plain() -> None:
    result = uml(*shell("seq 1 50000"))
    assert result.stdout == "".join(f"{number}\n" for number in range(1, 50001))


def test_output_arrives_while_the_command_runs() -> None:
    command = [TESTBED / "uml", "--no-module", *shell("echo first; sleep 60")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        process.terminate()


def test_no_terminal_and_no_input() -> None:
    assert uml(*shell("test -t 0 -o -t 1 -o -t 2; echo $?; cat")).stdout == "1\n"


def test_what_the_command_leaves_running_is_ended() -> None:
    result = uml("--timeout", 20, *shell("(trap '' TERM HUP; sleep 1000) & echo done"))
    assert (result.returncode, result.stdout) == (0, "done\n")


# --- its surroundings -----------------------------------------------------------


def test_folder_is_the_same(tmp_path: Path) -> None:
    inside = tmp_path / "with a space"
    inside.mkdir()
    for folder in (TREE, inside):
        assert uml("--", "pwd", cwd=folder).stdout == f"{folder}\n"


def test_environment_is_clean() -> None:
    environment = os.environ | {"SOME_VARIABLE": "x"}
    names = {line.split("=")[0] for line in uml("--", "env", env=environment).stdout.splitlines()}
    assert names == {
        "HOME", "LANG", "MERCURY_RESULTS", "MERCURY_TESTBED", "MODPROBE_OPTIONS", "PATH", "PWD",
        "TC_LIB_DIR", "TERM", "USER",
    } - ({"PWD"} - names)


def test_system_directories_come_first_in_path() -> None:
    path = uml(*shell("echo $PATH")).stdout
    assert path.startswith("/usr/sbin:/sbin:/usr/bin:/bin")


def test_results_have_the_same_path_and_stay(tmp_path: Path) -> None:
    results = tmp_path / "my results, all"
    result = uml("--results", results, *shell('echo "$MERCURY_RESULTS"; echo x > "$MERCURY_RESULTS/y z"'))
    assert result.stdout == f"{results}\n"
    assert (results / "y z").read_text() == "x\n"
    assert "Linux version" in (results / "kernel.log").read_text()


def test_kernel_log_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    uml("--kernel-log", log, *shell("echo hello from inside > /dev/kmsg"))
    assert "hello from inside\n" in log.read_text()


def test_files_outside_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old\n")
    result = uml(*shell(f"cat {tmp_path}/old; echo new > {tmp_path}/old; cat {tmp_path}/old; touch /usr/x"))
    assert result.stdout == "old\nnew\n"
    assert "Read-only file system" in result.stderr
    assert (tmp_path / "old").read_text() == "old\n"


def test_network_is_ready() -> None:
    line = """
        set -e
        ip -brief address show lo | grep -o 127.0.0.1
        ip netns add a && ip netns exec a ip link add name b type dummy
        cat /proc/sys/net/core/default_qdisc
    """
    result = uml(*shell(line))
    assert (result.returncode, result.stdout) == (0, "127.0.0.1\nfq_codel\n"), result.stderr


def test_tc_finds_the_tables_of_the_system() -> None:
    result = uml("--", *"tc qdisc add dev lo root netem delay 1ms 1ms distribution normal".split())
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("qdisc", ["cake", "drr", "ets", "fq", "hfsc", "htb", "multiq", "netem", "prio",
                                   "qfq", "red", "sfq", "skbprio", "tbf", "dualpi2"])
def test_config_has_the_qdisc(kernel: Path, qdisc: str) -> None:
    assert f"CONFIG_NET_SCH_{qdisc.upper()}=y" in (kernel / ".config").read_text()


def test_virtual_time_passes_at_once() -> None:
    begin = time.monotonic()
    result = uml("--virtual-time", *shell("a=$(date +%s); sleep 1000; b=$(date +%s); echo $((b - a))"))
    assert result.stdout == "1000\n"
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("nanoseconds", [1, 256, 5000])
def test_a_look_at_the_clock_takes_as_long_as_asked(nanoseconds: int) -> None:
    looks = 10_000
    program = f"import time\na = time.monotonic_ns()\nfor _ in range({looks}): b = time.monotonic_ns()\nprint(b - a)"
    result = uml("--clock-read", nanoseconds, "--", "/usr/bin/python3", "-c", program)
    # The clock counts in steps of 256 ns.
    assert abs(int(result.stdout) - looks * nanoseconds) < 0.05 * looks * nanoseconds + 512


@pytest.mark.parametrize("text", ["0", "-1", "1us", "", "1000000"])
def test_a_clock_that_stands_still_is_refused(text: str) -> None:
    result = uml("--clock-read", text, "--", "true")
    assert result.returncode == 125
    assert f"--clock-read '{text}' is not 1 to 999999 (ns)" in result.stderr


def test_real_time_passes_otherwise() -> None:
    begin = time.monotonic()
    assert uml("--", "sleep", 3).returncode == 0
    assert time.monotonic() - begin >= 3


def test_folder_of_the_run_may_be_anywhere() -> None:
    """The guest mounts file systems of its own over some folders."""
    assert uml("--", "true", env=os.environ | {"TMPDIR": "/dev/shm"}).returncode == 0


def test_memory_is_as_asked() -> None:
    kilobytes = int(uml("--mem", "256M", *shell("awk '/MemTotal/ { print $2 }' /proc/meminfo")).stdout)
    assert 200_000 < kilobytes <= 256 * 1024


def test_two_guests_at_once() -> None:
    command = [str(TESTBED / "uml"), "--no-module", *shell("sleep 1; echo done")]
    guests = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [guest.communicate(timeout=60)[0] for guest in guests] == ["done\n", "done\n"]


# --- what goes wrong --------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "no command was given"),
        (["--no-such-option", "true"], "unknown option '--no-such-option'"),
        (["--timeout", "soon", "true"], "--timeout 'soon'"),
        (["--timeout", "0", "true"], "--timeout '0'"),
        (["--mem", "lots", "true"], "--mem 'lots'"),
        (["--mem", "1M", "true"], "less than 128M"),
        (["--mem", "900T", "true"], "has room for --mem 900T"),
        (["--results"], "--results needs a value"),
        (["--results", "/proc/x", "true"], "results folder '/proc/x'"),
        (["--module", "/no/such.ko", "true"], "module '/no/such.ko' cannot be read"),
        (["--kernel", "other", "true"], "--kernel 'other' is neither plain nor debug"),
        (["--kernel", "debug", "--virtual-time", "true"], "debug kernel has no virtual time"),
    ],
)
def test_wrong_options_are_refused(words: list[str], sentence: str) -> None:
    result = uml(*words)
    assert result.returncode == FAILED
    assert sentence in result.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["no-such-suite"], "no suite 'no-such-suite': there are kunit netlink"),
        (["--no-such-option"], "unknown option '--no-such-option'"),
        (["--operations", "many"], "--operations needs a number"),
        (["--mutant"], "--mutant needs a number"),
    ],
)
def test_wrong_options_of_debug_are_refused(words: list[str], sentence: str) -> None:
    result = run("debug", *words)
    assert result.returncode == FAILED
    assert sentence in result.stderr


@pytest.mark.parametrize("mutant", sorted((TREE / "tests" / "mutants").glob("*.patch")))
def test_mutants_fit_the_module(mutant: Path) -> None:
    assert re.search(r"^Shows: \S", mutant.read_text(), re.M)
    command = ["patch", "--dry-run", "--strip", "1", "--directory", str(TREE)]
    with mutant.open() as patch:
        done = subprocess.run(command, stdin=patch, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_panic() -> None:
    result = uml(*shell("echo c > /proc/sysrq-trigger; exit 0"))
    assert result.returncode == CRASHED
    assert "Kernel panic" in result.stderr


def test_hang_of_the_command() -> None:
    begin = time.monotonic()
    result = uml("--timeout", 5, "--", "sleep", 1000)
    assert result.returncode == TIMEOUT
    assert "did not end within 5 s" in result.stderr
    assert time.monotonic() - begin < 30


def test_guest_that_ends_without_a_word() -> None:
    result = uml(*shell("echo o > /proc/sysrq-trigger; sleep 60"))
    assert result.returncode == FAILED
    assert "without reporting an exit status" in result.stderr


MODULE = """\
// SPDX-License-Identifier: GPL-2.0
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/reboot.h>
#include <linux/timer.h>
static int wait(struct notifier_block *block, unsigned long event, void *data)
{
	msleep(1000);
	return NOTIFY_DONE;
}
static struct notifier_block __maybe_unused before_power_off = { .notifier_call = wait };
static int __init start(void)
{
%s
}
static void __exit stop(void)
{
}
module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A module with a fault, for the tests of the test bed");
"""

FAULTS = {
    "good": 'pr_info("good module\\n"); return 0;',
    "refuses": "return -EPERM;",
    "warns": "WARN_ON(1); return 0;",
    "oopses": "*(volatile int *)8 = 0; return 0;",
    "hangs": "local_irq_disable(); for (;;) cpu_relax(); return 0;",
    "lingers": "return register_reboot_notifier(&before_power_off);",
}


@pytest.fixture(scope="session")
def faults(kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_faults(kernel, tmp_path_factory.mktemp("faults"), "ARCH=um")


def build_faults(kernel: Path, folder: Path, *variables: str) -> Path:
    for name, body in FAULTS.items():
        (folder / f"{name}.c").write_text(MODULE % textwrap.indent(body, "\t"))
    (folder / "Kbuild").write_text("obj-m := " + " ".join(f"{name}.o" for name in FAULTS) + "\n")
    subprocess.run(["make", "-s", *variables, "-C", kernel, f"M={folder}", "modules"], check=True)
    return folder


def test_module_is_loaded(faults: Path) -> None:
    result = uml("--module", faults / "good.ko", "--", "grep", "-c", "^good ", "/proc/modules")
    assert (result.returncode, result.stdout) == (0, "1\n")


def test_modprobe_finds_modules(faults: Path) -> None:
    result = uml("--module", faults / "good.ko", *shell("rmmod good && modprobe good && modprobe dummy"))
    assert result.returncode == 0, result.stderr


def test_module_that_does_not_load(faults: Path) -> None:
    result = uml("--module", faults / "refuses.ko", "--", "true")
    assert result.returncode == FAILED
    assert "cannot load refuses.ko" in result.stderr
    assert "Operation not permitted" in result.stderr


@pytest.mark.parametrize(("fault", "sign"), [("warns", "WARNING:"), ("oopses", "panic|BUG|Oops|Call Trace")])
def test_complaint_of_the_kernel_is_never_success(faults: Path, fault: str, sign: str) -> None:
    result = uml("--module", faults / f"{fault}.ko", "--", "true")
    assert result.returncode == CRASHED
    assert re.search(sign, result.stderr)


def test_hang_of_the_kernel(faults: Path) -> None:
    result = uml("--timeout", 5, "--module", faults / "hangs.ko", "--", "true")
    assert result.returncode == TIMEOUT


def test_power_goes_off_without_a_program(faults: Path) -> None:
    """The devices, and all files on them, go before the power does."""
    no_sleep = ["mount", "--bind", "/bin/false", "/usr/bin/sleep"]
    result = uml("--module", faults / "lingers.ko", "--", *no_sleep)
    assert result.returncode == 0, result.stderr


def without_tool(folder: Path, tool: str) -> dict[str, str]:
    """An environment whose PATH has everything but one tool."""
    for program in (path for place in ("/usr/sbin", "/usr/bin") for path in Path(place).iterdir()):
        link = folder / program.name
        if program.name != tool and not link.is_symlink():
            link.symlink_to(program)
    return os.environ | {"PATH": str(folder)}


def test_kernel_tree_must_be_one(tmp_path: Path) -> None:
    result = run("build-module", tmp_path)
    assert result.returncode == FAILED
    assert f"'{tmp_path}' is no prepared kernel tree" in result.stderr


def test_missing_tool_is_named(tmp_path: Path) -> None:
    result = uml("--", "true", env=without_tool(tmp_path, "setpriv"))
    assert result.returncode == FAILED
    assert "the tool 'setpriv' is missing" in result.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_leaves_nothing(own_tmp: Path, number: int, status: int) -> None:
    command = [TESTBED / "uml", "--no-module", *shell("echo started; sleep 1000")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True,
                               env=os.environ | {"TMPDIR": str(own_tmp)})
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    assert traces(own_tmp)
    os.killpg(process.pid, number)
    assert process.wait(timeout=20) == status
    process.stdout.close()
    assert not traces(own_tmp)


@pytest.mark.parametrize("line", ["true", "exit 3", "echo c > /proc/sysrq-trigger", "sleep 1000"])
def test_no_run_leaves_anything(own_tmp: Path, line: str) -> None:
    uml("--timeout", 5, *shell(line), env=os.environ | {"TMPDIR": str(own_tmp)})
    assert not traces(own_tmp)


# --- the cache ----------------------------------------------------------------------


@pytest.fixture
def no_apt(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An empty cache, and an apt that reaches nothing and remembers having been asked."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("apt-get", "apt-cache", "sudo"):
        (tools / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/asked\nexit 100\n")
        (tools / name).chmod(0o755)
    yield os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}


def cached(environment: dict[str, str], kernel: Path, version: str) -> Path:
    key = kernel.name.rsplit("-", 1)[1]
    folder = Path(environment["XDG_CACHE_HOME"]) / "mercury" / "uml" / f"{version}-{key}"
    folder.mkdir(parents=True)
    return folder


def test_half_built_kernel_is_never_used(kernel: Path, no_apt: dict[str, str]) -> None:
    (cached(no_apt, kernel, "7.9.1") / "linux").write_text("half")
    result = run("uml-kernel", env=no_apt)
    assert result.returncode == FAILED
    assert result.stdout == ""
    assert "neither linux-source-7.x nor linux-source-6.12" in result.stderr


def test_cached_kernel_needs_no_apt(kernel: Path, no_apt: dict[str, str]) -> None:
    folders = [cached(no_apt, kernel, version) for version in ("7.10.2", "7.9.10")]
    for folder in folders:
        (folder / ".complete").touch()
    result = run("uml-kernel", env=no_apt)
    assert result.stdout == f"{folders[0]}\n"
    assert not (Path(no_apt["XDG_CACHE_HOME"]) / "asked").exists()


# --- scripts/test -------------------------------------------------------------------


def scripts_test(folder: Path, suite: str) -> Result:
    command = [folder / "scripts" / "test", suite]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def own_scripts(tmp_path: Path) -> Path:
    """A tree with nothing but the scripts, and no kernel needed."""
    shutil.copytree(TREE / "scripts", tmp_path / "scripts")
    (tmp_path / "scripts" / "testbed" / "uml-kernel").write_text("#!/bin/sh\n")
    return tmp_path


@pytest.mark.parametrize(
    ("end", "verdict"),
    [("exit 124", "0 passed, 1 failed"), ("exit 0", "0 passed, 1 failed"),
     ('echo "ok 1 - a" >$REPORT; exit 1', "1 passed, 1 failed"),
     ('echo "not ok 1 - a" >$REPORT; exit 1', "0 passed, 1 failed"),
     ('echo "ok 1 - a" >$REPORT', "1 passed, 0 failed")],
)  # fmt: skip
def test_every_way_to_fail_is_counted(own_scripts: Path, end: str, verdict: str) -> None:
    """A suite that does not get as far as a report fails, and so do all."""
    report = own_scripts / "build" / "test" / "virtual" / "virtual.tap"
    uml_script = own_scripts / "scripts" / "testbed" / "uml"
    uml_script.write_text(f"#!/bin/sh\nREPORT={report}\n{end}\n")
    result = scripts_test(own_scripts, "virtual")
    assert result.stdout.splitlines()[-1] == verdict, result.stderr
    assert result.returncode == (not verdict.endswith(" 0 failed"))


def test_what_cannot_be_built_is_not_tested(own_scripts: Path) -> None:
    """Though there is a test from an earlier build, which would pass."""
    old = own_scripts / "build" / "userspace" / "tests" / "unit" / "old" / "unit_old"
    old.parent.mkdir(parents=True)
    old.write_text('#!/bin/sh\necho "<testsuite><testcase name=\'a\'/></testsuite>" >"$4"\n')
    old.chmod(0o755)
    (own_scripts / "Makefile").write_text("plugin:\n")
    result = scripts_test(own_scripts, "unit")  # there are no sources for cmake
    assert result.stdout.splitlines()[-1] == "0 passed, 1 failed"
    assert result.returncode == 1


# --- stock kernels in QEMU ----------------------------------------------------------

KERNELS = ["6.1", "6.12"]


@pytest.fixture(scope="session", params=KERNELS)
def series(request: pytest.FixtureRequest) -> str:
    result = run("vm-kernel", request.param, timeout=900)
    assert result.returncode == 0, result.stderr
    return str(request.param)


def test_dkms_builds_the_module(series: str, tmp_path: Path) -> None:
    headers = Path(run("vm-kernel", series).stdout.strip())
    release = headers.name.removeprefix("linux-headers-")
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin"}
    for folder in ("tree", "source"):
        (tmp_path / folder).mkdir()
    result = subprocess.run(
        ["dkms", "build", TREE / "kmod", "-k", release, "--kernelsourcedir", headers,
         "--dkmstree", tmp_path / "tree", "--sourcetree", tmp_path / "source"],
        capture_output=True, text=True, env=environment)  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    modules = list(tmp_path.glob("tree/sch-mercury/*/*/*/module/sch_mercury.ko*"))
    assert len(modules) == 1
    vermagic = subprocess.check_output(
        ["modinfo", "-F", "vermagic", modules[0]], text=True, env=environment)
    assert vermagic.split()[0] == release


def vm(series: str, *words: object) -> Result:
    return run("vm", "--kernel", series, "--no-module", "--timeout", 200, *words)


def test_vm_keeps_the_contract(series: str, tmp_path: Path) -> None:
    line = """
        printf '<%s>' "$@"; echo
        uname -r
        modprobe pktgen && tc qdisc add dev lo root ets bands 3 && tc qdisc show dev lo
        echo x > "$MERCURY_RESULTS/file"
        echo err >&2
        exit 3
    """
    result = vm(series, "--results", tmp_path, *shell(line), "name", "a b", "c'd", "")
    lines = result.stdout.splitlines()
    assert lines[0] == "<a b><c'd><>", result.stderr
    assert lines[1].startswith(f"{series}.")
    assert lines[2].startswith("qdisc ets")
    assert "err\n" in result.stderr
    assert (tmp_path / "file").read_text() == "x\n"
    assert result.returncode == 3


def test_vm_reports_a_panic(series: str) -> None:
    result = vm(series, *shell("echo c > /proc/sysrq-trigger"))
    assert result.returncode == CRASHED
    assert "Kernel panic" in result.stderr


def test_vm_reports_a_hang() -> None:
    result = run("vm", "--kernel", "6.1", "--no-module", "--timeout", 5, "--", "sleep", 1000)
    assert result.returncode == TIMEOUT


def test_vm_refuses_other_kernels() -> None:
    result = run("vm", "--kernel", "5.10", "--no-module", "--", "true")
    assert result.returncode == FAILED
    assert "'5.10' is not one of the kernels" in result.stderr


def test_vm_counts_instructions() -> None:
    """With --icount the guest's clock moves with its instructions and with nothing else."""
    result = run("vm", "--kernel", "6.12", "--no-module", "--icount", "--", "nproc")
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
