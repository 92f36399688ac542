#!/usr/bin/env bash
# Makes sure that PostgreSQL's server programs are there: installs them where root and apt are, else says what is missing.
set -euo pipefail
if command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing PostgreSQL's server programs"
  export DEBIAN_FRONTEND=noninteractive
  # No server of the distribution's own: tests and demo start theirs.
  mkdir -p /etc/postgresql-common
  [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends postgresql >/dev/null
  exit 0
fi
echo "PostgreSQL's server programs (initdb, postgres) are missing; install them, e.g. with: apt-get install postgresql" >&2
exit 1
