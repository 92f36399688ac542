#!/usr/bin/env bash
# Makes sure that strace is there: installs it where root and apt are, else says what is missing.
set -euo pipefail
if command -v strace >/dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing strace"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends strace >/dev/null
  exit 0
fi
echo "strace is missing; install it, e.g. with: apt-get install strace" >&2
exit 1
