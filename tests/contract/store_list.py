"""The stores under contract, and what of it was collected."""

import pytest

from lantern.cli.local_postgres import LocalPostgres
from lantern_journal.adapters.engines import postgres_sync_engine

STORES = ("sqlite", "postgres")
"""Every test that takes `store` runs on each of them, unless it says for which alone it is."""

COLLECTED = pytest.StashKey[list[pytest.Item]]()


def database_of_a_language(postgres: LocalPostgres, name: str) -> str:
    """The URL of a new database that sorts texts as English people do, as one does whose collation nobody chose."""
    engine = postgres_sync_engine(postgres.url).execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0")
    return postgres.database_url(name)
