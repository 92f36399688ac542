"""Goal: an SQLite database on a network file system is refused, one on a shared folder warned of, any other left alone.

Method: texts as /proc/self/mountinfo has them.
"""

import logging
from pathlib import Path

import pytest

from lantern_journal.adapters.sqlite_files import check_file_system
from lantern_kernel.errors import InvalidField

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 / /mnt/team rw,relatime shared:1 - nfs4 server:/team rw
41 40 254:1 / /mnt/team/local rw,relatime - xfs /dev/vdb rw
42 27 0:42 / /mnt/two\040words rw,relatime - cifs //server/share rw
43 27 0:43 / /mnt/over rw,relatime - ext4 /dev/vdc rw
44 27 0:44 / /mnt/over rw,relatime - fuse.sshfs me@server: rw
45 27 0:45 / /host rw,relatime - virtiofs host rw
46 27 0:46 / /encrypted rw,relatime - fuse.gocryptfs disk rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/team/journal.db", "nfs4"),
        ("/mnt/team/deep/er/journal.db", "nfs4"),
        ("/mnt/two words/journal.db", "cifs"),
        ("/mnt/over/journal.db", "fuse.sshfs"),
    ],
)
def test_a_network_file_system_is_refused(path: str, kind: str) -> None:
    with pytest.raises(InvalidField, match="LANTERN_DATABASE") as refused:
        check_file_system(Path(path), MOUNTS)
    assert kind in refused.value.message


@pytest.mark.parametrize("path", ["/host/journal.db", "/encrypted/journal.db"])
def test_a_shared_folder_is_warned_of(path: str, caplog: pytest.LogCaptureFixture) -> None:
    check_file_system(Path(path), MOUNTS)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("path", ["/home/me/journal.db", "/mnt/team/local/journal.db", "/mnt/teams/journal.db"])
def test_a_local_disk_is_fine(path: str, caplog: pytest.LogCaptureFixture) -> None:
    check_file_system(Path(path), MOUNTS)
    assert not caplog.records


def test_where_nothing_is_known_of_mounts_nothing_is_refused() -> None:
    check_file_system(Path("/mnt/team/journal.db"), "")
