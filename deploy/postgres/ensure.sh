#!/usr/bin/env bash
# Makes sure that PostgreSQL's server programs are there: installs them where root and apt are, else says what is missing.
# PgBouncer too, which a test puts before it.
set -euo pipefail
wanted=()
command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || wanted+=(postgresql)
command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || wanted+=(pgbouncer)
if [ ${#wanted[@]} = 0 ]; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing ${wanted[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # No server of the distribution's own: tests and demo start theirs.
  mkdir -p /etc/postgresql-common
  [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
  exit 0
fi
echo "missing: ${wanted[*]}; install it, e.g. with: apt-get install ${wanted[*]}" >&2
case " ${wanted[*]} " in
  *" postgresql "*) exit 1 ;;
esac
