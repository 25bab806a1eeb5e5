# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Shared by scripts/demo and scripts/cluster, which run userspace/replay in User-
# Mode Linux: what has to be there first. Needs ROOT, the tree, with
# scripts/testbed/lib.sh read; LOG, where builds are written; STEPS, how many.

REPLAY=$ROOT/build/userspace/replay/replay
# Writes the tables and pictures of a cluster's results.
REPORT=$ROOT/userspace/replay/report_cluster.py

readonly PICTURE_PACKAGES=(iproute2 python3 python3-matplotlib)
# The test bed looks after its own, too: here so that they can be announced.
readonly KERNEL_PACKAGES=(bc bison cpio flex kmod libelf-dev libssl-dev patch xz-utils)

usage_error() {
	note "$*"
	exit 2
}

has_kernel() {
	compgen -G "$CACHE/uml/*/.complete" >/dev/null
}

# Sets PACKAGES, and says what is missing of them.
announce_packages() {
	local package missing=()
	PACKAGES=("${USERSPACE_PACKAGES[@]}" "${PICTURE_PACKAGES[@]}")
	has_kernel || PACKAGES+=("${KERNEL_PACKAGES[@]}")
	for package in "${PACKAGES[@]}"; do
		is_installed "$package" || missing+=("$package")
	done
	if ((${#missing[@]})); then
		echo "It installs these Debian packages first: ${missing[*]}"
	else
		echo "All packages that it needs are installed."
	fi
}

STEP=0
step() {
	printf '\n[%d/%d %3ds] %s\n' "$((++STEP))" "$STEPS" "$SECONDS" "$*"
}

# quietly COMMAND...: what it says goes to the log, and to the terminal if it fails.
quietly() {
	local status=0 start
	start=$(wc -l <"$LOG")
	"$@" >>"$LOG" 2>&1 || status=$?
	((status == 0)) && return
	tail -n +"$((start + 1))" "$LOG" | tail -n 30 >&2
	note "failed: $*; all of its output is in $LOG"
	exit "$status"
}

build_replay() {
	quietly cmake -S "$ROOT/userspace" -B "$ROOT/build/userspace"
	quietly cmake --build "$ROOT/build/userspace" --parallel "$(nproc)" --target replay
}

# Two steps.
build_guest() {
	step "building the tc plugin"
	quietly make -C "$ROOT" plugin

	step "the User-Mode Linux kernel (5 to 9 minutes on two cores, the first time)"
	"$TESTBED/uml-kernel" >>"$LOG"
}
