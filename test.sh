#!/usr/bin/env bash
# Runs the tests of gocap, all of them or those of the packages given, and does
# the set-up itself: the servers that tests need (internal/cmd/services says how)
# and what the race detector needs. What it is given goes on to go test:
#
#   ./test.sh
#   ./test.sh -run TestStop ./cap/...
set -euo pipefail
cd "$(dirname "$0")"

missing() {
	printf 'test.sh: %s\n' "$@" >&2
	exit 1
}

need_go() {
	command -v go >/dev/null || missing \
		"the go command is missing." \
		"Install Go $(awk '$1 == "go" {print $2}' go.mod) or newer from https://go.dev/dl and put its bin folder in PATH."
}

# The race detector is linked through cgo: it takes a compiler and the headers
# of the C library.
have_c_compiler() {
	local cc
	cc=$(go env CC)
	printf '#include <stdlib.h>\nint main(void) { return 0; }\n' |
		$cc -x c -o /dev/null - 2>/dev/null
}

need_c_compiler() {
	have_c_compiler && return
	if [[ -e /etc/debian_version && $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
		echo "test.sh: installing a C compiler for the race detector"
		debian_packages gcc libc6-dev && have_c_compiler && return
	fi
	missing "a C compiler that go can use is missing; the race detector needs one ($(go env CC) was tried)." \
		"Debian, Ubuntu: sudo apt-get install gcc libc6-dev" \
		"Fedora: sudo dnf install gcc glibc-devel" \
		"Alpine: apk add gcc musl-dev" \
		"macOS: xcode-select --install"
}

debian_packages() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq </dev/null &&
		apt-get install -y -qq --no-install-recommends "$@" </dev/null
}

need_go
need_c_compiler

# The tests of transport/wmadapter with foreign clients are a module of their own.
foreign=integration/watermill

packages=(./...)
for argument in "$@"; do
	case $argument in
	. | ./*) packages=() ;;
	esac
done
# Which server is where, and how one is started, stands in internal/testenv; in
# Go, because tests start and kill servers of their own in the same way.
go build -o bin/services ./internal/cmd/services
export CGO_ENABLED=1
test=(go test -race -shuffle=on -timeout=15m)
if ((${#packages[@]} == 0)); then
	exec bin/services "${test[@]}" "$@"
fi
# Both modules, one after the other: each has the servers for itself.
# shellcheck disable=SC2016 # the inner shell expands them
exec bin/services bash -c 'bad=0; "$@" ./... || bad=1; cd "$0" && "$@" ./... || bad=1; exit "$bad"' \
	"$foreign" "${test[@]}" "$@"
