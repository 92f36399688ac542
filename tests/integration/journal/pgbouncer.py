"""A PgBouncer of one's own in transaction mode, before a PostgreSQL of one's own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psycopg
from journal_process import free_port

INSTALL_HINT = "PgBouncer is missing; install it, e.g. `apt-get install pgbouncer`"


class PgBouncer:
    """A running pooler with a few server connections; use as a context manager.

    Args:
        url: Of a database on the server that it stands before.
    """

    def __init__(self, url: str) -> None:
        found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        assert found, INSTALL_HINT
        self._program, self._server, self.port = found, urlsplit(url), free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="lantern-pgbouncer-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the database, through the pooler."""
        return f"postgresql://{self._server.username}@127.0.0.1:{self.port}{self._server.path}"

    def __enter__(self) -> Self:
        users, settings = self._folder / "users", self._folder / "pgbouncer.ini"
        users.write_text(f'"{self._server.username}" ""\n')
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self._server.port}\n[pgbouncer]\npool_mode = transaction\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = trust\n"
            # Neighbouring transactions of one client meet different server processes.
            f"auth_file = {users}\ndefault_pool_size = 12\nmax_client_conn = 200\nserver_round_robin = 1\n"
            # A server that was away is asked again after a second, not fifteen.
            f"server_login_retry = 1\n"
            f"logfile = {self._folder / 'log'}\nadmin_users = {self._server.username}\n"
        )
        command = [self._program, str(settings)]
        if os.geteuid() == 0:
            # It refuses to run as root.
            user = pwd.getpwnam("postgres")
            for path in (self._folder, users, settings):
                os.chown(path, user.pw_uid, user.pw_gid)
            command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *command]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                psycopg.connect(self.url, connect_timeout=1).close()
                break
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                self._process_wait(0.05)
        return self

    def _process_wait(self, seconds: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def statistics(self) -> dict[str, int]:
        """What it has done, by its own count."""
        with psycopg.connect(self.url.rsplit("/", 1)[0] + "/pgbouncer", autocommit=True) as admin:
            cursor = admin.cursor()
            pools = cursor.execute("SHOW STATS_TOTALS", prepare=False)
            assert pools.description is not None
            names = [column.name for column in pools.description]
            wanted = self._server.path.strip("/")
            row = next(row for row in pools.fetchall() if row[0] == wanted)
            return {name: value for name, value in zip(names, row, strict=True) if name != "database"}

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
