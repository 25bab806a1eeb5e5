# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Shared by the scripts of the test bed: messages, packages, the cache, and the
# life of a guest from its first process to the verdict on what it did.
#
# A guest is a kernel that runs one command in the files of this machine: User-
# Mode Linux (scripts/testbed/uml) or a distribution's kernel in QEMU
# (scripts/testbed/vm). Both are given the same things and judged alike:
#
#   $RUN/ctl      "init" (guest-init), "settings" and "argv" for the guest;
#                 "status" or "error" from it
#   $RUN/modules  where modprobe finds the module under test
#   $RUN/out      the results folder, or a link to it
#   $RUN/console  everything that the kernel printed

PROGRAM=${0##*/}
TESTBED=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
TREE=$(cd -- "$TESTBED/../.." && pwd -P)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/mercury

readonly EXIT_TIMEOUT=124 EXIT_TESTBED=125 EXIT_CRASH=134

# What a healthy kernel never prints. Judged from START_MARK on, so that a
# complaint of the boot is not held against the command.
readonly CRASH_PATTERN='Kernel panic - not syncing|BUG:|kernel BUG at|WARNING:|Oops|\[ cut here \]|Call Trace:|general protection fault(,|:)|UBSAN:|KASAN:|unreferenced object|refcount_t:|rcu: INFO: .* stall|blocked for more than|unregister_netdevice: waiting for|ODEBUG:|ref_tracker:|INFO: trying to register|kmemleak: [0-9]+ new suspected|lockdep is off'
readonly START_MARK='mercury-testbed: start'

# --- messages ---------------------------------------------------------------

note() {
	printf '%s: %s\n' "$PROGRAM" "$*" >&2
}

die() {
	note "$*"
	exit "$EXIT_TESTBED"
}

# The comment block at the top of the calling script is its help text.
show_help() {
	sed -n '4,/^[^#]/ { /^#/!d; s/^# \{0,1\}//; p }' "$0"
}

# --- packages ---------------------------------------------------------------

# What the user space is built with.
# shellcheck disable=SC2034 # the callers use it
readonly USERSPACE_PACKAGES=(bpftool build-essential catch2 clang cmake libbpf-dev libcli11-dev
	libfmt-dev libmnl-dev libspdlog-dev libtomlplusplus-dev nlohmann-json3-dev pkg-config
	prometheus-cpp-dev)

as_root() {
	if ((EUID == 0)); then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "'$*' must be run as root, and there is no sudo"
	fi
}

is_installed() {
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Installs those of the named packages that are missing, and says which.
need_packages() {
	local package missing=()
	for package in "$@"; do
		is_installed "$package" || missing+=("$package")
	done
	((${#missing[@]})) || return 0
	note "installing the packages: ${missing[*]}"
	apt_install "${missing[@]}" ||
		die "apt-get could not install: ${missing[*]}"
}

# Another apt-get may be running: wait for it. The lists are brought up to date
# only when they do not suffice, since that takes longer than most installs.
apt_install() {
	local install=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y
		-o DPkg::Lock::Timeout=600 install --no-install-recommends "$@")
	as_root "${install[@]}" >&2 && return
	as_root apt-get -q -o DPkg::Lock::Timeout=600 update >&2
	as_root "${install[@]}" >&2
}

need_tools() {
	local tool
	for tool in "$@"; do
		command -v "$tool" >/dev/null || die "the tool '$tool' is missing"
	done
}

# --- apt with lists of its own ------------------------------------------------
# Kernels are downloaded and unpacked, never installed. The machine's sources
# are read; its lists, cache and configuration are left alone.

# apt_for NAME COMMAND ARGS...: a command of apt in the state named NAME, which
# uses $CACHE/apt/NAME.sources instead of the machine's sources where it exists.
apt_for() {
	local state=$CACHE/apt/$1 options
	shift
	options=(-q -o Dir::State::lists="$state/lists" -o Dir::Cache="$state/cache"
		-o APT::Sandbox::User=root -o Acquire::Retries=3)
	if [[ -e $state.sources ]]; then
		options+=(-o Dir::Etc::sourcelist="$state.sources"
			-o Dir::Etc::sourceparts=/dev/null)
	fi
	mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
	"$1" "${options[@]}" "${@:2}"
}

# The machine may have sources that cannot be reached and do not matter here:
# what is needed and missing is reported where it is needed.
apt_update() {
	note "reading the package lists ($1)"
	apt_for "$1" apt-get update >&2 || note "some package lists ($1) could not be read"
}

# newest_package STATE REGEX: the name with the highest version in it, or nothing.
newest_package() {
	{ apt_for "$1" apt-cache search --names-only "$2" || true; } |
		cut -d ' ' -f 1 | sort -V | tail -n 1
}

package_version() {
	apt_for "$1" apt-cache show --no-all-versions "$2" | sed -n 's/^Version: //p'
}

# download STATE PACKAGE FOLDER: fetches the package and unpacks it there.
download() {
	note "downloading $2"
	mkdir -p "$3/.deb"
	(cd "$3/.deb" && apt_for "$1" apt-get download "$2" >&2) ||
		die "the package $2 could not be downloaded"
	dpkg -x "$3"/.deb/*.deb "$3" || die "the package $2 could not be unpacked"
	rm -r "$3/.deb"
}

# --- cache --------------------------------------------------------------------

# One builder at a time; the lock goes when this process ends.
lock_cache() {
	mkdir -p "$CACHE"
	exec {CACHE_LOCK}>"$CACHE/lock"
	flock --nonblock "$CACHE_LOCK" && return
	note "waiting for another run that fills $CACHE"
	flock "$CACHE_LOCK"
}

# An entry of the cache is whole when it has this stamp, written last.
is_complete() {
	[[ -e $1/.complete ]]
}

mark_complete() {
	: >"$1/.complete"
}

# need_space FOLDER BYTES WHAT
need_space() {
	local free
	free=$(df --output=avail --block-size=1 "$1" | tail -n 1)
	((free >= $2)) ||
		die "$3 needs $(numfmt --to=iec "$2") in $1, where $(numfmt --to=iec "$free") are free"
}

# What uname -r prints under the kernel; include/config/kernel.release is wrong in
# Debian 6.1.
kernel_release() {
	sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' "$1/include/generated/utsrelease.h"
}

# The option by which the callers of uml-kernel choose a kernel: sets TAKEN to the
# number of its words, 0 if "$@" does not begin with it.
KERNEL=plain
parse_kernel() {
	TAKEN=0
	[[ $1 == --kernel ]] || return 0
	[[ ${2:-} == plain || ${2:-} == debug ]] ||
		die "--kernel '${2:-}' is neither plain nor debug"
	# shellcheck disable=SC2034 # the callers read it
	KERNEL=$2 TAKEN=2
}

# --- modules --------------------------------------------------------------------

# build_modules NAME KERNEL_BUILD_DIR ARCH FOLDER... [-- WORD...]: builds the modules
# whose sources are in these folders, with the WORDs for make, and prints where
# they are: in build/NAME-RELEASE, out of copies of the sources, so that the builds
# for several kernels do not meet. ARCH may be empty. For a subshell: the lock
# goes with it.
build_modules() {
	local kernel=$2 arch=$3 work lock sources=()
	work=$TREE/build/$1-$(kernel_release "$kernel")
	shift 3
	while (($#)) && [[ $1 != -- ]]; do
		sources+=("$1/.")
		shift
	done
	mkdir -p "$work" || return
	exec {lock}>"$work/.lock"
	flock "$lock"
	cp -ru -- "${sources[@]}" "$work/" || return
	# No BTF: the distributions' kernels ask for it, and say that they cannot make it.
	make -s -C "$kernel" "M=$work" ${arch:+"ARCH=$arch"} CONFIG_DEBUG_INFO_BTF_MODULES= \
		"${@:2}" -j"$(nproc)" modules >&2 || return
	echo "$work"
}

# --- the guest ----------------------------------------------------------------

# The options that uml and vm have in common; parse_common takes one of them from
# "$@" and sets TAKEN to the number of its words, 0 if it is none of them.
TIMEOUT=600
MEMORY=2G
RESULTS=
KERNEL_LOG=
LOAD_MERCURY=yes
EXTRA_MODULES=()
GUEST=
# shellcheck disable=SC2034 # the callers read TAKEN
parse_common() {
	TAKEN=2
	case $1 in
	--timeout | --mem | --results | --module | --kernel-log)
		(($# > 1)) || die "$1 needs a value; see --help"
		;;
	esac
	case $1 in
	--timeout) TIMEOUT=$2 ;;
	--mem) MEMORY=$2 ;;
	--results) RESULTS=$2 ;;
	--kernel-log) KERNEL_LOG=$2 ;;
	--module) EXTRA_MODULES+=("$2") ;;
	--no-module) LOAD_MERCURY=no TAKEN=1 ;;
	--help | -h)
		show_help
		exit 0
		;;
	*) TAKEN=0 ;;
	esac
}

check_common() {
	(($#)) || die "no command was given; see --help"
	[[ $TIMEOUT =~ ^[1-9][0-9]*$ ]] ||
		die "--timeout '$TIMEOUT' is not a number of seconds above 0"
	MEMORY_BYTES=$(numfmt --from=iec "$MEMORY" 2>/dev/null) ||
		die "--mem '$MEMORY' is not a size such as 512M or 2G"
	((MEMORY_BYTES >= 128 << 20)) || die "--mem '$MEMORY' is less than 128M"
}

# prepare_run KIND BUILD_DIR [ARCH]: lays out $RUN for the command in COMMAND.
prepare_run() {
	RUN=$(mktemp -d -t mercury-testbed.XXXXXX)
	trap stop_guest EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	[[ $RUN != *[[:space:],]* ]] || die "TMPDIR ($RUN) must hold no space and no comma"
	mkdir "$RUN/ctl"
	prepare_results
	prepare_modules "${@:2}"
	printf '%s\0' "${COMMAND[@]}" >"$RUN/ctl/argv"
	install -m 755 "$TESTBED/guest-init" "$RUN/ctl/init"
	write_settings "$1"
	: >"$RUN/console"
}

prepare_results() {
	if [[ -n $RESULTS ]]; then
		mkdir -p "$RESULTS" || die "the results folder '$RESULTS' cannot be made"
		RESULTS=$(cd -- "$RESULTS" && pwd -P)
		ln -s "$RESULTS" "$RUN/out"
	else
		mkdir "$RUN/out"
		RESULTS=$RUN/out
	fi
}

# Builds sch_mercury for the kernel and gives modprobe a folder with it, so that
# the kernel can also load it by name. Copies, since the next build must not
# change a module under this guest.
prepare_modules() {
	local build=$1 arch=${2:-} release root module modules=()
	release=$(kernel_release "$build")
	root=modules/lib/modules/$release
	mkdir -p "$RUN/$root/extra"
	if [[ $LOAD_MERCURY == yes ]]; then
		modules+=("$("$TESTBED/build-module" "$build" ${arch:+"$arch"})") || exit
	fi
	MODULES=()
	for module in "${modules[@]}" "${EXTRA_MODULES[@]}"; do
		cp "$module" "$RUN/$root/extra/" || die "the module '$module' cannot be read"
		MODULES+=("$root/extra/${module##*/}")
	done
	link_stock_modules "$build" "$RUN/$root"
	depmod -b "$RUN/modules" "$release" 2>/dev/null || die "depmod failed for $release"
}

# A distribution's kernel comes with modules; UML has everything built in, and
# modprobe must know what.
link_stock_modules() {
	local stock=${1%/usr/src/*}/lib/modules/${2##*/}
	if [[ -d $stock ]]; then
		ln -s "$stock"/{kernel,modules.{order,builtin,builtin.modinfo}} "$2"
	else
		ln -s "$1"/modules.{builtin,builtin.modinfo} "$2"
		: >"$2/modules.order"
	fi
}

write_settings() {
	local -A setting=([KIND]=$1 [RUN]=$RUN [RESULTS]=$RESULTS [FOLDER]=$PWD
		[PLUGINS]=$TREE/build/tc [START_MARK]=$START_MARK)
	local name
	for name in "${!setting[@]}"; do
		printf '%s=%q\n' "$name" "${setting[$name]}"
	done >"$RUN/ctl/settings"
	printf 'MODULES=(%s)\n' "${MODULES[*]@Q}" >>"$RUN/ctl/settings"
}

# run_guest PROGRAM ARGS...: starts the guest in a session of its own, since UML
# kills its process group when it panics, and waits for it, but no longer than
# TIMEOUT. The guest's descriptor 1 is its kernel log; 3 and 4 are the command's
# stdout and stderr, through relays: UML switches what it is given to
# non-blocking, which must not happen to the caller's terminal. 0, 6 and 7 are
# inputs on which nothing ever arrives, one for each console of UML.
run_guest() {
	local relays=() watchdog
	mkfifo "$RUN/idle"
	exec 3> >(exec cat) && relays+=($!)
	exec 4> >(exec cat >&2) && relays+=($!)
	exec 5> >(exec tr -d '\r' >"$RUN/console") && relays+=($!)
	TIMED_OUT=no
	setpriv --pdeathsig KILL setsid "$@" \
		0<>"$RUN/idle" 6<>"$RUN/idle" 7<>"$RUN/idle" >&5 2>&1 &
	GUEST=$!
	exec 3>&- 4>&- 5>&-
	sleep "$TIMEOUT" &
	watchdog=$!
	# bash would tell on stderr which signal ended the guest.
	wait -n "$GUEST" "$watchdog" 2>/dev/null || true
	if kill -0 "$watchdog" 2>/dev/null; then
		kill "$watchdog"
	else
		TIMED_OUT=yes
	fi
	kill_guest
	wait "${relays[@]}" || true
}

kill_guest() {
	[[ -n $GUEST ]] || return 0
	kill -KILL -- "-$GUEST" 2>/dev/null || true
	wait "$GUEST" 2>/dev/null || true
}

stop_guest() {
	local job
	kill_guest
	for job in $(jobs -p); do
		kill "$job" 2>/dev/null || true
	done
	rm -rf "$RUN"
}

# verdict: what became of the command, in words on stderr and as exit status.
verdict() {
	local complaints status=
	keep_log
	complaints=$(log_of_command | grep -E "$CRASH_PATTERN" | head -n 5) || true
	[[ -e $RUN/ctl/status ]] && status=$(<"$RUN/ctl/status")
	if [[ -n $complaints ]]; then
		show_log
		note "the kernel crashed or complained while '${COMMAND[0]}' ran:"
		printf '%s\n' "$complaints" >&2
		return "$EXIT_CRASH"
	elif [[ $TIMED_OUT == yes ]]; then
		show_log
		note "'${COMMAND[0]}' did not end within $TIMEOUT s (see --timeout): stopped"
		return "$EXIT_TIMEOUT"
	elif [[ -e $RUN/ctl/error ]]; then
		show_log
		note "the guest could not be set up: $(<"$RUN/ctl/error")"
		return "$EXIT_TESTBED"
	elif [[ -z $status ]]; then
		show_log
		note "the guest ended without reporting an exit status"
		return "$EXIT_TESTBED"
	fi
	((status == 0)) || show_log
	return "$status"
}

keep_log() {
	[[ $RESULTS == "$RUN"/* ]] || cp "$RUN/console" "$RESULTS/kernel.log"
	[[ -z $KERNEL_LOG ]] || cp "$RUN/console" "$KERNEL_LOG"
}

# The kernel log from the moment that the guest was ready, or all of it if it
# never was.
log_of_command() {
	if grep -qF "$START_MARK" "$RUN/console"; then
		sed "1,/$START_MARK/d" "$RUN/console"
	else
		cat "$RUN/console"
	fi
}

show_log() {
	local tail
	tail=$(log_of_command | grep -vE '^$|sysrq: Power Off|reboot: Power down|ACPI: PM: Preparing' | tail -n 40) || return 0
	note "the end of the kernel log:"
	printf '%s\n' "$tail" | sed 's/^/  | /' >&2
}
