"""The small parts of the local supervisor, each alone."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from gateway.http.listener import bind
from infra.local.account import Account, account_for_postgres
from infra.local.folders import SOCKET_PATH_BYTES, DataFolder
from infra.local.leftovers import processes_in
from infra.local.lock import FolderLock, held
from infra.local.log_file import last_line, rotate, tail
from infra.local.ports import PortInUse, Ports, ephemeral_range, reserve_port
from infra.local.private import claim_folder, replace_file, secret_text
from tests.deployment import free_port
from tests.small_disk import Kind, small_disk


def test_a_second_holder_is_refused_by_name_and_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    program = (
        "import sys; from pathlib import Path; from infra.local.lock import FolderLock;"
        "lock = FolderLock(Path(sys.argv[1])); lock.acquire(); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    assert held(path)
    with pytest.raises(ConfigError, match=rf"already up .*\(pid {holder.pid}\)"):
        FolderLock(path).acquire()
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    assert not held(path)
    lock = FolderLock(path)
    lock.acquire()
    lock.release()


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_a_full_disk_is_one_sentence_and_no_lock_needs_room(kind: Kind) -> None:
    with small_disk(kind, 4_000_000) as disk:
        (disk.path / "lock").touch()
        disk.fill()
        lock = FolderLock(disk.path / "lock")
        lock.acquire()
        assert held(disk.path / "lock")
        lock.release()
        with pytest.raises(ConfigError, match=r"token: no space left on device \(0\.0 MB free\); free some, or choose"):
            secret_text(disk.path / "token")
        with pytest.raises(ConfigError, match=r"ports\.json: no space left on device"):
            Ports(disk.path / "ports.json").save()


def test_what_postgres_died_of_is_told_and_not_that_it_ended(tmp_path: Path) -> None:
    stamp = "2026-11-22 05:09:24.098 UTC [23007]"
    (tmp_path / "log").write_text(
        f'{stamp} FATAL:  could not write to file "pg_wal/xlogtemp.23007": No space left on device\n'
        f"{stamp} FATAL:  the database system is not yet accepting connections\n"
        f"{stamp} LOG:  startup process (PID 23007) exited with exit code 1\n"
        f"{stamp} LOG:  database system is shut down\n"
        "2026-11-22T05:09:24Z supervisor: postgres pid 22763 ended with exit code 1\n"
    )
    assert last_line(tmp_path / "log").endswith('"pg_wal/xlogtemp.23007": No space left on device')
    (tmp_path / "log").write_text("slipstream: the database's disk is full\n")
    assert last_line(tmp_path / "log") == "the database's disk is full"


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is in use .* --port"):
            reserve_port("127.0.0.1", port)


def test_localhost_is_both_of_its_addresses() -> None:
    port = free_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        with pytest.raises(PortInUse, match=f"port {port} on ::1 is in use"):
            reserve_port("localhost", port)
        reserve_port("127.0.0.1", port).close()  # a client that is given this address never tries the other
    with reserve_port("localhost", port), pytest.raises(OSError, match="in use"):
        socket.create_server(("::1", port), family=socket.AF_INET6)


def test_a_held_port_is_only_for_programs_that_share_it() -> None:
    port = free_port()
    with reserve_port("127.0.0.1", port):
        with pytest.raises(ConfigError, match="is in use by another program"):
            reserve_port("127.0.0.1", port)  # a second deployment that starts at the same moment
        with pytest.raises(OSError, match="in use"), socket.create_server(("127.0.0.1", port)):
            pass
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            pass
        listener = bind("127.0.0.1", port)
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)):
            served, _ = listener.socket.accept()
        served.close()  # first, so that its end of the connection waits in TIME_WAIT
        listener.close()
    reserve_port("127.0.0.1", port).close()


def test_picked_ports_stay_unless_somebody_took_them(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    ports = Ports(file)
    first, second = ports.pick("first"), ports.pick("second")
    assert first != second
    ports.save()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", second))
        listener.listen()
        again = Ports(file)
        assert again.pick("first") == first
        assert again.pick("second") != second
    file.write_text('{"first": 80')
    assert Ports(file).pick("first") > 0, "a damaged file is no obstacle"


def test_ports_are_picked_where_no_client_is_given_one(tmp_path: Path) -> None:
    """A client's connection could take it before its process listens."""
    file = tmp_path / "ports.json"
    ephemeral = ephemeral_range()
    assert ephemeral, "this kernel does not tell its ephemeral range"
    file.write_text(json.dumps({"kept": ephemeral.start + 1}))
    ports = Ports(file)
    picked = [ports.pick(f"process {number}") for number in range(50)] + [ports.pick("kept")]
    assert len(set(picked)) == 51
    assert not [port for port in picked if port in ephemeral]


def test_secrets_are_private_and_made_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    first = secret_text(path)
    assert len(first) == 64
    assert secret_text(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "pepper").touch()
    with pytest.raises(ConfigError, match="is empty"):
        secret_text(tmp_path / "pepper")


def test_a_file_that_cannot_be_replaced_keeps_its_content_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError):
        replace_file(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    replace_file(tmp_path / "other", b"new")
    assert ((tmp_path / "other").read_bytes(), stat.S_IMODE((tmp_path / "other").stat().st_mode)) == (b"new", 0o600)


def test_every_secret_has_a_private_file_of_its_own(data_folder: Path) -> None:
    folder = DataFolder(data_folder)
    folder.prepare()
    assert {path.name for path in folder.secret_files} == {
        "token", "router.token", "router.reader.token", "engine.metrics.token", "pepper",
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.secret_files} == {0o600}
    assert len({path.read_text() for path in folder.secret_files}) == len(folder.secret_files)
    for path in (folder.path, folder.run, folder.logs, folder.journal):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_data_folder_of_an_older_release_keeps_what_it_has(data_folder: Path) -> None:
    data_folder.mkdir(mode=0o700)
    for name in ("token", "pepper"):
        (data_folder / name).write_text(f"older {name}")
    folder = DataFolder(data_folder)
    folder.prepare()
    assert [path.read_text() for path in (folder.token_file, folder.pepper_file)] == ["older token", "older pepper"]
    assert all(len(path.read_text()) == 64 for path in folder.secret_files if not path.read_text().startswith("older"))
    made = [path.read_text() for path in folder.secret_files]
    folder.prepare()
    assert [path.read_text() for path in folder.secret_files] == made


def test_a_path_too_long_for_sockets_gets_a_short_private_run_folder(data_folder: Path) -> None:
    deep = data_folder / ("x" * 100) / "d"
    folder = DataFolder(deep)
    folder.prepare()
    try:
        assert folder.run.parent == Path(tempfile.gettempdir())
        assert len(os.fsencode(folder.postgres_socket / ".s.PGSQL.5432")) <= SOCKET_PATH_BYTES
        assert stat.S_IMODE(folder.run.stat().st_mode) == 0o700
        assert DataFolder(deep).run == folder.run
        assert DataFolder(deep / "other").run != folder.run
    finally:
        folder.run.rmdir()


@pytest.mark.parametrize(
    ("below", "said"), [("/".join(["y" * 200] * 5), "at most 900 work"), ("file/data", "--data"), ("z" * 300, "--data")]
)
def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, below: str, said: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=said):
        DataFolder(tmp_path / below).prepare()


@pytest.mark.parametrize("use", [DataFolder.make, DataFolder.prepare])
def test_a_path_that_is_not_utf_8_is_refused_before_anything_is_made(
    tmp_path: Path, use: Callable[[DataFolder], None]
) -> None:
    with pytest.raises(ConfigError, match=r"x-\\xff' is not valid UTF-8; choose a UTF-8 path with --data"):
        use(DataFolder(tmp_path / os.fsdecode(b"x-\xff")))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a folder to somebody else")
def test_a_folder_of_somebody_else_is_not_taken_over(tmp_path: Path) -> None:
    # Root could enter it; in a shared temporary folder that is how a trap would look.
    trap = tmp_path / "trap"
    trap.mkdir()
    os.chown(trap, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to uid 65534"):
        claim_folder(trap)


def test_a_link_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        claim_folder(tmp_path / "link")


def test_reach_is_judged_by_every_folder_above(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    (shut / "inner").mkdir(parents=True)
    (shut / "inner" / "file").write_text("x")
    stranger = Account("stranger", 64000, 64000)
    owner = Account("owner", os.getuid(), os.getgid())
    shut.chmod(0o700)
    assert not stranger.reaches(shut / "inner" / "file")
    assert owner.reaches(shut / "inner" / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user never changes account")
@pytest.mark.parametrize("name", ["root", "no-such-account"])
def test_postgres_never_gets_an_account_it_cannot_use(name: str) -> None:
    with pytest.raises(ConfigError, match="postgres_account"):
        account_for_postgres(name, Path("none"))


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user never changes account")
def test_postgres_gets_an_account_of_its_own_where_there_is_one_and_keeps_the_one_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"slipstream": 64_001, "nobody": 65_534}
    made = {name: pwd.struct_passwd((name, "x", uid, uid, "", "/", "/bin/false")) for name, uid in known.items()}
    monkeypatch.setattr(pwd, "getpwnam", made.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", {entry.pw_uid: entry for entry in made.values()}.__getitem__)
    cluster = tmp_path / "postgres"

    def chosen(name: str = "") -> str:
        account = account_for_postgres(name, cluster)
        assert account is not None
        return account.name

    assert chosen() == "slipstream"
    assert chosen("nobody") == "nobody"
    cluster.mkdir()
    (cluster / "PG_VERSION").write_text("18")
    os.chown(cluster / "PG_VERSION", 65_534, 65_534)
    assert chosen() == "nobody"  # a cluster does not change hands because somebody made an account
    del made["slipstream"]
    assert chosen() == "nobody"
    (cluster / "PG_VERSION").unlink()
    assert chosen() == "nobody"


def test_logs_rotate_by_size_and_keep_some(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for generation in range(4):
        log.write_text(f"generation {generation} " * 100)
        rotate(log, max_bytes=100, keep=2)
    assert not log.exists()
    assert (tmp_path / "a.log.1").read_text().startswith("generation 3")
    assert (tmp_path / "a.log.2").read_text().startswith("generation 2")
    assert not (tmp_path / "a.log.3").exists()
    log.write_text("small")
    rotate(log, max_bytes=100, keep=2)
    assert log.read_text() == "small"


def test_the_last_line_is_the_process_own(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert last_line(log) == ""
    log.write_text("one\ntwo\n\n2026-01-01T00:00:00Z supervisor: a ended with exit code 1\n")
    assert last_line(log) == "two"
    assert tail(log, 1)[0].endswith("exit code 1")
    assert tail(log, 2, size=len("one\ntwo\n")) == ["one", "two"], "later lines are for the follower"


def test_leftover_processes_are_known_by_folder_and_program_not_by_pid(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, cwd=tmp_path)
    try:
        program = Path(f"/proc/{sleeper.pid}/exe").readlink().name
        assert processes_in(tmp_path, program) == [sleeper.pid]
        assert processes_in(tmp_path, "postgres") == []
        assert processes_in(tmp_path.parent, program) == []
    finally:
        assert sleeper.stdin is not None
        sleeper.stdin.close()
        sleeper.wait()
