# SPDX-License-Identifier: GPL-2.0
"""A real Prometheus asks a real mercuryd, and the dashboard asks that Prometheus."""

from __future__ import annotations

import json
import math
import pathlib
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lib import tc
from lib.netns import Pair

from daemon import Daemon, eventually
from trainer import DONE, PORT, Sink, Trainer

TREE = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = TREE / "packaging/mercury.grafana.json"
DOCUMENT = TREE / "docs/metrics.md"
METRICS_PORT, PROMETHEUS_PORT = 9468, 9090
SCOPES = {"Q": "qdisc", "J": "job", "B": "band", "D": "default"}

CONFIG = f"""[metrics]
port = {METRICS_PORT}
[[device]]
name = "eth0"
rate = "50mbit"
"""
PROMETHEUS_CONFIG = f"""
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: mercury
    static_configs: [{{targets: ["127.0.0.1:{METRICS_PORT}"]}}]
"""


def prometheus_folder() -> pathlib.Path:
    """Fetched before: there is no network here."""
    found = subprocess.run([TREE / "tests/daemon/prometheus"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return pathlib.Path(found.stdout.strip())


class Page:
    """What is to be read at a port in a namespace."""

    def __init__(self, pair: Pair, port: int) -> None:
        self._pair, self._url = pair, f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> str:
        url = f"{self._url}{path}?{urllib.parse.urlencode(query)}"
        with self._pair.a.inside(), urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read().decode()


class Prometheus(Page):
    def __init__(self, pair: Pair, folder: pathlib.Path) -> None:
        super().__init__(pair, PROMETHEUS_PORT)
        config = folder / "prometheus.yml"
        config.write_text(PROMETHEUS_CONFIG)
        words = ["ip", "netns", "exec", pair.a.name, prometheus_folder() / "prometheus"]
        words += [f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}"]
        words += [f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"]
        with (folder / "prometheus.log").open("w") as log:
            self._process = subprocess.Popen(words, stderr=log, stdout=log)

    def query(self, expression: str) -> list[dict[str, Any]]:
        answer = json.loads(self.get("/api/v1/query", query=expression))
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def value(self, expression: str) -> float:
        (only,) = self.query(expression)
        return float(only["value"][1])

    def is_up(self) -> bool:
        try:
            return self.value("up") == 1
        except (OSError, ValueError):
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def daemon(pair: Pair, tmp_path: pathlib.Path) -> Iterator[Daemon]:
    daemon = Daemon(pair.a, tmp_path)
    daemon.configure(CONFIG)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def metrics(pair: Pair, daemon: Daemon) -> Page:
    return Page(pair, METRICS_PORT)


@pytest.fixture
def prometheus(pair: Pair, daemon: Daemon, tmp_path: pathlib.Path) -> Iterator[Prometheus]:
    prometheus = Prometheus(pair, tmp_path)
    eventually(prometheus.is_up, "Prometheus has asked mercuryd", 120)
    yield prometheus
    prometheus.stop()


@pytest.fixture
def busy(
    pair: Pair, daemon: Daemon, make_trainer: Callable[..., Trainer]
) -> Iterator[Trainer]:
    """A job with two bands, and a packet that nobody marked; all has arrived."""
    sink = Sink(pair.b)
    trainer = make_trainer(daemon.socket)
    trainer.job("vgg16", 4)
    for layer in (0, 15):
        trainer.open(layer, PORT, pair.B4)
    for index in range(2):
        trainer.send(index, 1 << 20)
    for _ in range(5):  # a pace needs three intervals
        trainer.step()
    unmarked = pair.a.socket(2, 1)
    unmarked.connect((pair.B4, PORT))
    trainer.sent()
    eventually(lambda: sink.received == 2 << 20, "everything has arrived")
    eventually(lambda: tc.qdisc(pair.a)["qlen"] == 0, "nothing waits")
    yield trainer
    unmarked.close()
    sink.close()


def names_in(text: str) -> set[str]:
    """Of all families in Prometheus' text, but those that the exposer has of itself."""
    found = re.findall(r"^# TYPE (\S+) ", text, re.M)
    return {name for name in found if not name.startswith("exposer_")}


def documented() -> set[str]:
    names = set()
    for name, where in re.findall(r"^\| `(\S+)` \| \w+ \| ([^|]*)\|", DOCUMENT.read_text(), re.M):
        scopes = where.split() if "*" in name else ["Q"]
        names |= {name.replace("*", SCOPES[scope]) for scope in scopes}
    return names


def expressions(dashboard: dict[str, Any]) -> list[str]:
    targets = [t for panel in dashboard["panels"] for t in panel.get("targets", [])]
    return [target["expr"] for target in targets]


def fresh(metrics: Page) -> str:
    """An answer is a second old at most; wait until there is a new one."""
    time.sleep(1.1)
    return metrics.get("/metrics")


def test_prometheus_and_tc_agree(busy: Trainer, pair: Pair, prometheus: Prometheus) -> None:
    for band in (0, 2):
        labels = f'{{device="eth0",qdisc="1:",job_number="1",band="{band}"}}'
        shown = tc.classes(pair.a)[tc.band(1, band)]

        def is_same(labels: str = labels, shown: dict = shown) -> bool:
            found = prometheus.query(f"mercury_band_sent_packets_total{labels}")
            return bool(found) and float(found[0]["value"][1]) == shown["packets"]

        eventually(is_same, f"Prometheus has the packets of band {band}", 60)
        assert prometheus.value(f"mercury_band_sent_bytes_total{labels}") == shown["bytes"]
        assert prometheus.value(f"mercury_band_sojourn_seconds_count{labels}") == shown["packets"]
        quantile = f"histogram_quantile(0.99, mercury_band_sojourn_seconds_bucket{labels})"
        assert 0 < prometheus.value(quantile) < math.inf
    assert prometheus.value('mercury_hints_job_steps_total{job_number="1"}') == 5
    assert prometheus.value('sum(mercury_hints_job_sockets{job_number="1"})') == 2
    bands = {one["metric"]["band"] for one in prometheus.query("mercury_band_sent_packets_total")}
    assert bands == {"0", "2"}, "only those that ever had a packet"


def test_every_expression_of_the_dashboard_is_answered(
    busy: Trainer, metrics: Page, prometheus: Prometheus
) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    known = names_in(metrics.get("/metrics"))
    known |= {f"{name}_bucket" for name in known}
    queries = [one["query"] for one in dashboard["templating"]["list"]]
    for text in expressions(dashboard) + queries:
        assert set(re.findall(r"\bmercury_\w+", text)) <= known, text
    # Rates need two answers.
    eventually(lambda: prometheus.value("count_over_time(up[1m])") >= 3, "three answers", 60)
    nothing_wrong = ("> 0", "< Inf", "/ (")
    for expression in expressions(dashboard):
        plain = expression.replace("$__rate_interval", "1m").replace("$device", ".*")
        found = prometheus.query(plain.replace("$job", ".*"))
        assert found or any(part in expression for part in nothing_wrong), expression


def test_the_list_of_metrics_is_complete(busy: Trainer, metrics: Page) -> None:
    shown = names_in(fresh(metrics))
    assert documented() - shown == set(), "documented, but not there"
    assert shown - documented() == set(), "there, but not documented"


def test_promtool_finds_nothing(busy: Trainer, metrics: Page) -> None:
    promtool = prometheus_folder() / "promtool"
    done = subprocess.run(
        [promtool, "check", "metrics"], input=fresh(metrics), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_clients_that_do_not_finish_disturb_nobody(busy: Trainer, pair: Pair, daemon: Daemon) -> None:
    slow = []
    for _ in range(60):
        sock = pair.a.socket(2, 1)
        sock.connect(("127.0.0.1", METRICS_PORT))
        sock.send(b"GET /metr")
        slow.append(sock)
    for _ in range(100):
        assert busy.step() == DONE
    assert busy.dispatch(30_000) == DONE  # step() does not wait for its answer
    assert daemon.status()["jobs"][0]["steps"] == 105
    for sock in slow:
        sock.close()


def test_without_a_port_nobody_listens(pair: Pair, tmp_path: pathlib.Path) -> None:
    daemon = Daemon(pair.a, tmp_path)
    daemon.start()
    with pytest.raises(OSError):
        Page(pair, METRICS_PORT).get("/metrics")
    daemon.stop()
