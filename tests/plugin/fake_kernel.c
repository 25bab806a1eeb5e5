// SPDX-License-Identifier: GPL-2.0
/*
 * fake_kernel.c - LD_PRELOAD for tc: the kernel's side of the qdisc and class
 * requests, so that the plugin is tested with the real tc, without root,
 * without a module, and without a change to the machine.
 *
 * FAKE_SENT=FILE  requests to change something are appended to FILE, and
 *                 acknowledged
 * FAKE_DUMP=FILE  the messages in FILE are the answer to a request to list
 *
 * Other netlink requests (the name of an interface) go to the real kernel.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

static unsigned char answer[1 << 20];
static size_t answer_len;
static int answer_fd = -1;

static void add_answer(int fd, const struct nlmsghdr *request, __u16 type,
		       const void *data, size_t len)
{
	struct sockaddr_nl self = { 0 };
	socklen_t self_len = sizeof(self);
	struct nlmsghdr h = {
		.nlmsg_len = (__u32)NLMSG_LENGTH(len),
		.nlmsg_type = type,
		.nlmsg_flags = NLM_F_MULTI,
		.nlmsg_seq = request->nlmsg_seq,
	};

	getsockname(fd, (struct sockaddr *)&self, &self_len);
	h.nlmsg_pid = self.nl_pid;
	memcpy(answer + answer_len, &h, sizeof(h));
	memcpy(answer + answer_len + NLMSG_HDRLEN, data, len);
	answer_len += NLMSG_SPACE(len);
	answer_fd = fd;
}

static void acknowledge(int fd, const struct nlmsghdr *request)
{
	struct nlmsgerr ok = { .error = 0, .msg = *request };

	add_answer(fd, request, NLMSG_ERROR, &ok, sizeof(ok));
}

static void answer_dump(int fd, const struct nlmsghdr *request)
{
	static unsigned char file[sizeof(answer) / 2];
	const char *path = getenv("FAKE_DUMP");
	FILE *f = path ? fopen(path, "rb") : NULL;
	size_t len = f ? fread(file, 1, sizeof(file), f) : 0;
	int done = 0;

	for (size_t at = 0; at + sizeof(struct nlmsghdr) <= len;) {
		struct nlmsghdr *h = (struct nlmsghdr *)(file + at);

		add_answer(fd, request, h->nlmsg_type, NLMSG_DATA(h),
			   h->nlmsg_len - NLMSG_HDRLEN);
		at += NLMSG_ALIGN(h->nlmsg_len);
	}
	add_answer(fd, request, NLMSG_DONE, &done, sizeof(done));
	if (f)
		fclose(f);
}

static void record(const struct nlmsghdr *request)
{
	const char *path = getenv("FAKE_SENT");
	FILE *f = path ? fopen(path, "ab") : NULL;

	if (!f || fwrite(request, 1, request->nlmsg_len, f) !=
			  request->nlmsg_len)
		abort();
	fclose(f);
}

static int is_ours(int fd, const void *data, size_t len)
{
	const struct nlmsghdr *h = data;
	int domain = 0;
	socklen_t domain_len = sizeof(domain);

	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len);
	if (domain != AF_NETLINK || len < sizeof(*h))
		return 0;
	switch (h->nlmsg_type) {
	case RTM_NEWQDISC:
	case RTM_DELQDISC:
	case RTM_NEWTCLASS:
	case RTM_DELTCLASS:
		record(h);
		acknowledge(fd, h);
		return 1;
	case RTM_GETQDISC:
	case RTM_GETTCLASS:
		answer_dump(fd, h);
		return 1;
	default:
		return 0;
	}
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) =
		dlsym(RTLD_NEXT, "sendmsg");
	size_t len = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		len += msg->msg_iov[i].iov_len;
	if (msg->msg_iovlen && is_ours(fd, msg->msg_iov[0].iov_base, len))
		return (ssize_t)len;
	return next(fd, msg, flags);
}

ssize_t send(int fd, const void *data, size_t len, int flags)
{
	ssize_t (*next)(int, const void *, size_t, int) =
		dlsym(RTLD_NEXT, "send");

	if (is_ours(fd, data, len))
		return (ssize_t)len;
	return next(fd, data, len, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int) =
		dlsym(RTLD_NEXT, "recvmsg");
	size_t len = answer_len, room = msg->msg_iov[0].iov_len;

	if (fd != answer_fd)
		return next(fd, msg, flags);
	if (!len) {
		errno = EAGAIN;
		return -1;
	}
	if (msg->msg_name) {
		memset(msg->msg_name, 0, msg->msg_namelen);
		((struct sockaddr_nl *)msg->msg_name)->nl_family = AF_NETLINK;
	}
	msg->msg_flags = 0;
	memcpy(msg->msg_iov[0].iov_base, answer, len < room ? len : room);
	if (!(flags & MSG_PEEK)) {
		answer_len = 0;
		answer_fd = -1;
	}
	return (ssize_t)len;
}
