# SPDX-License-Identifier: GPL-2.0
#
# make; sudo make install; sudo tc qdisc add dev eth0 root mercury

# The kernel to build for: its build folder, and its release.
KDIR ?= /lib/modules/$(shell uname -r)/build
RELEASE = $(shell cut -d '"' -f 2 $(KDIR)/include/generated/utsrelease.h)

# Of the user space; the module and the plugin are where the kernel and tc look for them.
PREFIX ?= /usr/local

BUILD := $(CURDIR)/build
KMOD = $(BUILD)/kmod-$(RELEASE)
DKMS := sch-mercury/$(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' kmod/dkms.conf)

.PHONY: all modules plugin userspace test demo install install-dkms uninstall clean help

## all: the module for the running kernel, the tc plugin and the user space
all: modules plugin userspace

## modules: build/kmod-RELEASE/sch_mercury.ko; KDIR=... for another kernel
modules:
	@test -e $(KDIR)/Makefile || { \
		echo "make: no kernel build folder at $(KDIR): install the headers" \
			"(Debian: linux-headers-amd64), or name one with KDIR=" >&2; \
		exit 1; }
	@mkdir -p $(KMOD)/uapi
	@cp -u kmod/Kbuild kmod/*.[ch] $(KMOD)
	@cp -u kmod/uapi/*.h $(KMOD)/uapi
	$(MAKE) -C $(KDIR) M=$(KMOD) modules

## plugin: build/tc/q_mercury.so
plugin:
	$(MAKE) -C tc-plugin O=$(BUILD)/tc

## userspace: build/userspace, with CMake
userspace:
	cmake -S userspace -B $(BUILD)/userspace -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	cmake --build $(BUILD)/userspace --parallel $(shell nproc)

## test: every test there is, in kernels of their own (scripts/test)
test:
	scripts/test

## demo: a model's gradients across an emulated 10 Gb/s link (scripts/demo)
demo:
	scripts/demo

## install: all of it; the user space below PREFIX=/usr/local; DESTDIR= for packages
install: modules plugin userspace
	install -D -m 644 $(KMOD)/sch_mercury.ko \
		$(DESTDIR)/lib/modules/$(RELEASE)/updates/sch_mercury.ko
	$(if $(DESTDIR),,depmod $(RELEASE))
	$(MAKE) -C tc-plugin O=$(BUILD)/tc install
	$(install-userspace)

define install-userspace
	DESTDIR=$(DESTDIR) cmake --install $(BUILD)/userspace
	$(if $(DESTDIR),,ldconfig)
endef

## install-dkms: the same, and the module is built again for every new kernel
install-dkms: plugin userspace
	$(remove-dkms)
	dkms install $(CURDIR)/kmod
	$(MAKE) -C tc-plugin O=$(BUILD)/tc install
	$(install-userspace)

define remove-dkms
	@! test -e /var/lib/dkms/$(DKMS) || dkms remove $(DKMS) --all
	rm -rf /usr/src/$(subst /,-,$(DKMS))
endef

## uninstall: takes away what install or install-dkms has put there
uninstall:
	$(if $(DESTDIR),,$(remove-dkms))
	rm -f $(DESTDIR)/lib/modules/$(RELEASE)/updates/sch_mercury.ko
	$(if $(DESTDIR),,depmod $(RELEASE))
	$(MAKE) -C tc-plugin uninstall
	! test -e $(BUILD)/userspace/install_manifest.txt || \
		sed 's,^,$(DESTDIR),' $(BUILD)/userspace/install_manifest.txt | xargs -d '\n' rm -f

## clean: removes build/ (the kernels of the test bed are kept elsewhere)
clean:
	rm -rf $(BUILD)

## help: this list
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)
