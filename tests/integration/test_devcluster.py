"""Tests of servers as child processes: they start, stop, and terminate with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from helpers.aliases import Cluster
from helpers.configurations import plaintext
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.threads import in_thread
from helpers.waiting import wait_for
from helpers.zookeeper import zookeeper_client

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster import DevCluster, JarsUnavailableError, ServerFailedError, jars
from zkconsumer.devcluster.jars import resolve
from zkconsumer.devcluster.process import ServerProcess
from zkconsumer.devcluster.servers import pinned_versions
from zkconsumer.errors import BrokerUnavailableError, ZkConsumerError


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[DevCluster, DevCluster]]:
    """Start two clusters at the same time."""
    clusters = DevCluster(brokers=1), DevCluster(brokers=1, chroot="/kafka/deeper")
    try:
        for start in [in_thread(cluster.start) for cluster in clusters]:
            start.result(60)
        yield clusters
    finally:
        for cluster in clusters:
            with contextlib.suppress(AttributeError):
                cluster.stop()


def read_all(cluster: DevCluster, topic: str, group: str, count: int) -> list[bytes]:
    properties = {
        **cluster.consumer_properties,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": 20_000,
    }
    with create_consumer(ConsumerConfig.from_dict(properties, strict=True)) as consumer:
        return values(take(consumer.create_message_streams({topic: 1})[topic][0], count))


def test_concurrent_clusters_are_independent(pair: tuple[DevCluster, DevCluster]) -> None:
    for number, cluster in enumerate(pair):
        cluster.create_topic("same-name")
        produce(cluster.admin, "same-name", 0, numbers(100 * number, 100 * number + 10))

    assert [read_all(cluster, "same-name", "same-group", 10) for cluster in pair] == [numbers(0, 10), numbers(100, 110)]
    assert pair[0].folder != pair[1].folder
    ports = [cluster.zookeeper.port for cluster in pair] + [cluster.brokers[0].endpoint.port for cluster in pair]
    assert len(set(ports)) == 4


def test_chroot_contains_kafka_and_groups(pair: tuple[DevCluster, DevCluster]) -> None:
    cluster = pair[1]
    cluster.create_topic("in-the-chroot")
    produce(cluster.admin, "in-the-chroot", 0, [b"x"])
    read_all(cluster, "in-the-chroot", "g", 1)

    with zookeeper_client(cluster.zookeeper.connect) as client:
        assert "brokers" not in client.get_children("/")
        assert client.exists("/kafka/deeper/brokers/topics/in-the-chroot")
        assert client.get("/kafka/deeper/consumers/g/offsets/in-the-chroot/0")[0] == b"1"


def test_servers_listen_on_loopback_only(pair: tuple[DevCluster, DevCluster]) -> None:
    for server in (pair[0].zookeeper, *pair[0].brokers):
        assert server.pid is not None
        listening = [c.laddr.ip for c in psutil.Process(server.pid).net_connections("inet") if c.status == "LISTEN"]
        assert listening
        assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


def answers(cluster: DevCluster, timeout: float) -> bool:
    channel = plaintext(timeout).channel(cluster.brokers[0].endpoint)
    try:
        channel.connect()
    except BrokerUnavailableError:
        return False
    finally:
        channel.close()
    return True


def test_paused_server_answers_after_resume(
    pair: tuple[DevCluster, DevCluster],
) -> None:
    broker = pair[0].brokers[0]
    broker.pause()
    try:
        assert broker.is_running
        assert not answers(pair[0], 0.5)
    finally:
        broker.resume()

    assert answers(pair[0], 10)


def test_killed_server_restarts_with_data_and_port(pair: tuple[DevCluster, DevCluster]) -> None:
    cluster = pair[0]
    broker = cluster.brokers[0]
    cluster.create_topic("kept")
    produce(cluster.admin, "kept", 0, numbers(0, 5))
    pid, endpoint = broker.pid, broker.endpoint
    assert pid is not None

    broker.kill()
    assert (broker.is_running, broker.pid, is_alive(pid)) == (False, None, False)
    assert not answers(cluster, 1)

    broker.start()
    assert broker.endpoint == endpoint
    assert broker.pid not in (None, pid)
    assert read_all(cluster, "kept", "after-kill", 5) == numbers(0, 5)


def test_restarted_zookeeper_keeps_znodes(pair: tuple[DevCluster, DevCluster]) -> None:
    server = pair[1].zookeeper
    with zookeeper_client(server.connect) as client:
        client.create("/kept", b"data")
        before = server.pid

        server.restart()

        assert server.pid not in (None, before)
        wait_for(lambda: client.connected)
        assert client.retry(client.get, "/kept")[0] == b"data"


def test_starting_running_server_does_nothing(pair: tuple[DevCluster, DevCluster]) -> None:
    broker = pair[1].brokers[0]
    before = broker.pid

    broker.start()

    assert broker.pid == before


def test_stopped_cluster_deletes_its_data(pair: tuple[DevCluster, DevCluster]) -> None:
    """Must be the last test that uses these clusters."""
    for cluster in pair:
        servers = [cluster.zookeeper, *cluster.brokers]
        pids = [server.pid for server in servers if server.pid is not None]
        folder = cluster.folder

        cluster.stop()

        assert [pid for pid in pids if is_alive(pid)] == []
        assert not folder.exists()
        cluster.stop()


def test_server_starts_with_many_open_files(tmp_path: Path) -> None:
    """dash, which is /bin/sh on Debian, supports file descriptors only up to 9."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(30)]
    server = ServerProcess("sleeper", ["sleep", "60"], tmp_path, lambda: True)
    try:
        server.start()
        wait_for(lambda: server.pid and psutil.Process(server.pid).name() == "sleep", 10, what=server.log_end())
        pid = server.pid
        assert pid is not None

        server.stop()

        assert not is_alive(pid)
        assert not server.is_running
    finally:
        server.kill()
        for descriptor in opened:
            os.close(descriptor)


CHILD = """
    import sys
    from zkconsumer.devcluster import DevCluster

    cluster = DevCluster(brokers=1).start()
    print(cluster.folder, cluster.zookeeper.pid, cluster.brokers[0].pid, flush=True)
    sys.stdin.read()
"""


def test_servers_die_with_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(CHILD)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, text=True)
    try:
        assert parent.stdout is not None
        folder, *numbers_ = parent.stdout.readline().split()
        pids = [int(number) for number in numbers_]
        assert [is_alive(pid) for pid in pids] == [True, True]
        watchers = [child.pid for pid in pids for child in psutil.Process(pid).children()]

        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()

        wait_for(lambda: not any(map(is_alive, [*pids, *watchers])), 10, what="the servers terminate")
    finally:
        parent.kill()
        parent.communicate()
    subprocess.run(["rm", "-rf", folder], check=True)


def test_failed_start_shows_end_of_log() -> None:
    cluster = DevCluster(brokers=1, broker_config={"num.network.threads": "none"})

    with pytest.raises(ServerFailedError) as raised:
        cluster.start()

    assert "broker-0 exited with code" in str(raised.value)
    assert "num.network.threads" in str(raised.value)
    assert not cluster.zookeeper.is_running
    assert not cluster.folder.exists()


# ---- jars -------------------------------------------------------------------------------------------------


@pytest.fixture
def use_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Use only the repository at a port, and an empty cache."""

    def use(port: int) -> None:
        monkeypatch.setenv("ZKCONSUMER_MAVEN_REPOSITORY", f"http://127.0.0.1:{port}/maven2")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        resolve.cache_clear()

    return use


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve a repository, and yield its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = in_thread(server.serve_forever)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.result()


def test_unavailable_jars_are_reported_with_remedy(
    tmp_path: Path, use_repository: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    use_repository(1)

    with pytest.raises(JarsUnavailableError) as raised:
        resolve("org.example:does-not-exist:1.2.3")

    text = str(raised.value)
    assert text.startswith("could not download org.example:does-not-exist:1.2.3: ")
    assert "Connection refused" in text
    assert "check the connection to the Maven repository" in text
    assert "ZKCONSUMER_MAVEN_REPOSITORY" in text
    assert not list((tmp_path / "cache" / "zkconsumer" / "jars").glob("org.example*"))
    assert "downloading org.example:does-not-exist:1.2.3" in capfd.readouterr().err


class _EmptyRepository(BaseHTTPRequestHandler):
    """A repository that responds, and has no artifacts."""

    def do_GET(self) -> None:
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


def test_missing_version_names_existing_ones(use_repository: Callable[[int], None]) -> None:
    with serving(_EmptyRepository) as port:
        use_repository(port)
        with pytest.raises(JarsUnavailableError) as raised:
            resolve("org.apache.kafka:kafka_2.13:3.9")

    assert str(raised.value) == (
        "the Maven repository has no version 3.9 of org.apache.kafka:kafka_2.13; available versions: "
        f"{', '.join(pinned_versions())}"
    )


POM = "<project><groupId>org.example</groupId><artifactId>{}</artifactId><version>1</version></project>"


class _Repository(BaseHTTPRequestHandler):
    """A repository of jars without dependencies."""

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(self._content())

    def do_HEAD(self) -> None:
        content = self._content()
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()

    def _content(self) -> bytes:
        path = Path(self.path)
        return {".jar": b"jar", ".pom": POM.format(path.parts[-3]).encode()}.get(path.suffix, b"")

    def log_message(self, *_: object) -> None:
        pass


class _FailingRepository(_Repository):
    """A repository of an artifact with a dependency, for whose POM the first response has the status 503."""

    failures = 1

    def do_GET(self) -> None:
        if self.path.endswith("needed-1.pom") and type(self).failures:
            type(self).failures -= 1
            self.send_error(503)
        else:
            super().do_GET()

    def do_HEAD(self) -> None:
        if self.path.endswith("needed-1.pom") and self.command == "HEAD":
            self.send_error(503)
        else:
            super().do_HEAD()

    def _content(self) -> bytes:
        content = super()._content()
        if self.path.endswith("main-1.pom"):
            needed = "<groupId>org.example</groupId><artifactId>needed</artifactId><version>1</version>"
            end = f"<dependencies><dependency>{needed}</dependency></dependencies></project>"
            return content.replace(b"</project>", end.encode())
        return content


def test_failed_request_for_dependency_is_repeated(use_repository: Callable[[int], None]) -> None:
    with serving(_FailingRepository) as port:
        use_repository(port)
        found = resolve("org.example:main:1")

    assert [path.name for path in found] == ["org.example_main-1.jar", "org.example_needed-1.jar"]


def test_status_of_failed_request_is_reported(
    use_repository: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_FailingRepository, "failures", 100)
    with serving(_FailingRepository) as port:
        use_repository(port)
        with pytest.raises(JarsUnavailableError, match=r"could not download .*: needed-1\.pom: HTTP status 503; check"):
            resolve("org.example:main:1")


class _WaitingRepository(_Repository):
    """A repository that sends no jar before two are requested."""

    both = threading.Barrier(2, timeout=60)

    def do_GET(self) -> None:
        if self.path.endswith(".jar"):
            self.both.wait()
        super().do_GET()


def pin(monkeypatch: pytest.MonkeyPatch, names: str, content: bytes) -> None:
    """Pin the checksum of an artifact of the repository for each character of ``names``."""
    checksum = sha256(content).hexdigest()
    pinned = {f"org.example:{name}:1": {f"org.example_{name}-1.jar": checksum} for name in names}
    monkeypatch.setattr(jars, "pins", lambda: pinned)
    resolve.cache_clear()


@pytest.mark.slow
def test_pinned_jars_are_downloaded_at_the_same_time(
    tmp_path: Path, use_repository: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "ab", b"jar")

    with serving(_WaitingRepository) as port:
        use_repository(port)
        jars.resolve_pinned()

    assert {path.name for path in (tmp_path / "cache").rglob("*.jar")} == {"org.example_a-1.jar", "org.example_b-1.jar"}


def test_corrupt_cached_jars_are_downloaded_again(
    use_repository: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "c", b"jar")
    with serving(_Repository) as port:
        use_repository(port)
        [jar] = resolve("org.example:c:1")
        jar.write_bytes(b"damaged")
        (jar.parent / "added.jar").write_bytes(b"")
        resolve.cache_clear()
        assert resolve("org.example:c:1") == (jar,)

    assert jar.read_bytes() == b"jar"
    assert [path.name for path in jar.parent.iterdir()] == [jar.name]


def test_jars_with_other_checksums_are_rejected(
    tmp_path: Path, use_repository: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "d", b"another jar")

    with serving(_Repository) as port:
        use_repository(port)
        with pytest.raises(JarsUnavailableError) as raised:
            resolve("org.example:d:1")

    assert "differ from the pinned ones: org.example_d-1.jar" in str(raised.value)
    assert not list(tmp_path.rglob("*.jar"))


def test_download_error_states_missing_extra(
    use_repository: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo", None)
    use_repository(1)

    with pytest.raises(JarsUnavailableError, match="requires jgo, which is not installed; run `pip install 'jgo"):
        resolve("org.example:e:1")


def test_topic_can_be_created_again_at_once(zkconsumer_cluster: Cluster, unique: Callable[[str], str]) -> None:
    name = unique("t")
    for count in range(1, 6):
        zkconsumer_cluster.create_topic(name, count)
        assert len(zkconsumer_cluster.admin.offsets(name, count)) == count
        with pytest.raises(ZkConsumerError, match="already exists"):
            zkconsumer_cluster.create_topic(name, 1)
        zkconsumer_cluster.admin.delete_topic(name)
