#!/usr/bin/env bash
# Runs the tests of gocap, all of them or those of the packages given, and does
# the set-up itself. What it is given goes on to go test:
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

# Tests of transport/rabbitmq share a broker, which they never stop; for what they
# stop they start nodes of their own, with the same program.
rabbitmq_answers() { (exec 3<>/dev/tcp/127.0.0.1/5672) 2>/dev/null; }

need_rabbitmq() {
	if ! command -v rabbitmq-server >/dev/null && [[ -e /etc/debian_version && $EUID -eq 0 ]]; then
		echo "test.sh: installing RabbitMQ"
		debian_packages rabbitmq-server
	fi
	command -v rabbitmq-server >/dev/null || missing \
		"the program rabbitmq-server is missing; the tests of transport/rabbitmq stop and start brokers of their own." \
		"Debian, Ubuntu: sudo apt-get install rabbitmq-server" \
		"macOS: brew install rabbitmq"
	[[ -n ${GOCAP_RABBITMQ_URL:-} ]] && return
	if ! rabbitmq_answers && [[ $EUID -eq 0 ]]; then
		rabbitmq-server -detached && timeout 60 rabbitmqctl await_startup >/dev/null
	fi
	rabbitmq_answers || missing \
		"no RabbitMQ answers at 127.0.0.1:5672." \
		"Start one (rabbitmq-server -detached), or set GOCAP_RABBITMQ_URL."
}

need_go
need_c_compiler
# Services that tests need are made ready here, one function each as above.
need_rabbitmq

packages=(./...)
for argument in "$@"; do
	case $argument in
	. | ./*) packages=() ;;
	esac
done
CGO_ENABLED=1 exec go test -race -shuffle=on -timeout=10m ${packages[@]+"${packages[@]}"} "$@"
