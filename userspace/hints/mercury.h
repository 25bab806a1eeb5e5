/* SPDX-License-Identifier: MIT */
/*
 * Hints: a training program says in which order its layers are needed, and which sockets carry
 * them; mercuryd(8) marks the sockets for sch_mercury.
 *
 *     struct mercury_client *client = mercury_client_new(NULL);
 *     struct mercury_layer layers[] = {{"conv1", 37632, 0, 0}, {"fc", 8192000, 0, 0}};
 *     mercury_client_job(client, "resnet50", layers, 2, 4);
 *     for each class c below mercury_client_classes(client):
 *         connect a socket, and before its first byte
 *         mercury_client_assign(client, fd, first layer of c, 128 << 10);
 *     each iteration:
 *         mercury_client_step(client);
 *     mercury_client_free(client);
 *
 * Without a daemon everything works as well, but with less: sockets get SO_PRIORITY 1 (needed
 * first) to 6, which sch_mercury reads with `key priority` and which needs no privilege, and no
 * mark. mercury_client_status() says which it is and why. When a daemon comes, or comes back, the
 * library tells it everything again.
 *
 * Waiting. A call that the daemon answers waits for the answer, at most as long as
 * mercury_client_set_timeout() says (one second unless set). If the answer takes longer, or with a
 * timeout of 0, the call returns MERCURY_PENDING, and mercury_client_dispatch() gets the answer
 * when mercury_client_fd() is readable. A daemon that has been slow once is not waited for until it
 * has answered.
 *
 * The library has no thread, no signal handler and no output of its own; it neither raises SIGPIPE
 * nor aborts. A client is used by one thread at a time and by the process that made it: in a
 * child after fork() every call but mercury_client_free() is refused.
 *
 * Strings are UTF-8, end with a zero byte, and are copied.
 */
#ifndef MERCURY_CLIENT_H
#define MERCURY_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What calls return: errors are below 0 and have changed nothing; mercury_client_error() tells
 * more. The numbers never change.
 */
enum mercury_outcome {
    MERCURY_DONE = 0,
    MERCURY_FALLBACK = 1, /* done, without a daemon: SO_PRIORITY only */
    MERCURY_PENDING = 2,  /* asked for; the daemon has not answered yet */

    MERCURY_ERROR_ARGUMENT = -1, /* NULL, too long, out of range, no such layer */
    MERCURY_ERROR_MEMORY = -2,
    MERCURY_ERROR_ORDER = -3,   /* mercury_client_job() comes first */
    MERCURY_ERROR_SOCKET = -4,  /* not a TCP or UDP socket */
    MERCURY_ERROR_BUSY = -5,    /* the socket has data underway, which a new mark would reorder: try
                                   again when all of it is acknowledged (SIOCOUTQ is 0) */
    MERCURY_ERROR_REFUSED = -6, /* by the daemon, such as for a limit; the priority is set */
    MERCURY_ERROR_FORKED = -7   /* this process has not made the client */
};

struct mercury_client;

/* The library's, such as "0.1.0", which may be newer than this header. Static. */
const char* mercury_version(void);

/*
 * PATH is the daemon's socket; NULL: what the environment variable MERCURY_SOCKET says, or else
 * /run/mercury/hints.sock. Nothing is connected yet. NULL if there is no memory.
 */
struct mercury_client* mercury_client_new(const char* path);

/* The daemon forgets the job; sockets keep their marks. Never waits. NULL is allowed. */
void mercury_client_free(struct mercury_client* client);

/* Milliseconds that a call may wait for the daemon; 0: it never does. Default: 1000. */
int mercury_client_set_timeout(struct mercury_client* client, unsigned int milliseconds);

/* In the order of the forward pass, from the input. */
struct mercury_layer {
    const char* name;     /* 1 to 128 bytes, without control characters */
    uint64_t bytes;       /* of the gradient; 1 to 10^13 */
    uint64_t forward_ns;  /* 0 if not known, at most one hour */
    uint64_t backward_ns; /* the same */
};

/*
 * What this program trains: 1 to 1024 LAYERS. NAME, of 1 to 128 bytes, is the same for all
 * processes of this job on this host, which share the job's part of the link. CLASSES, 1 to 32, is
 * how many groups of layers the program can keep apart, with a connection each; four are enough.
 * May be called again when the layers have changed.
 */
int mercury_client_job(struct mercury_client* client, const char* name,
                       const struct mercury_layer* layers, size_t count, size_t classes);

/* Into how many classes the layers were grouped, at most those that were asked for. 0: no job. */
size_t mercury_client_classes(const struct mercury_client* client);

/* The class of LAYER: 0 is needed first. An error is below 0. */
int mercury_client_class_of(const struct mercury_client* client, size_t layer);

/*
 * FD, a TCP or UDP socket, will carry LAYER, and others of the same class if the program likes.
 * Before its first byte; later only while it has nothing underway. LOWAT, unless it is 0, becomes
 * its TCP_NOTSENT_LOWAT: 128 KiB keeps what is not sent yet where it can still be overtaken.
 *
 * The library remembers FD by number, and asks whether it is still the same socket before it uses
 * it again, so there is nothing to be done when it is closed.
 */
int mercury_client_assign(struct mercury_client* client, int fd, size_t layer, uint32_t lowat);

/* An iteration begins. Never waits. From the times between, the daemon corrects deadlines. */
int mercury_client_step(struct mercury_client* client);

/*
 * For poll(2): the connection to the daemon, or -1 while there is none; and the events to wait for.
 * Both may change with every call.
 */
int mercury_client_fd(const struct mercury_client* client);
short mercury_client_events(const struct mercury_client* client);

/*
 * Does what is due: gets answers, connects again, sends what could not be sent, and sockets that
 * were busy and have nothing underway any more. Waits at most so
 * many MILLISECONDS (0: not at all) until everything has been answered.
 */
int mercury_client_dispatch(struct mercury_client* client, unsigned int milliseconds);

/*
 * The same as mercury_client_assign(), but for the kernel alone: without a daemon in between and
 * without a client, so that any process of the job's user can do it, in any language. JOB is the
 * number that mercury_client_status() tells, LAYER as it was declared last.
 *
 *     struct mercury_socket_layer which = {job, layer};
 *     setsockopt(fd, MERCURY_SOL, MERCURY_SO_LAYER, &which, sizeof(which));
 *
 * Only where the daemon runs with `setsockopt = true`, see mercuryd.toml(5). Otherwise errno is
 * ENOPROTOOPT, and nothing has changed. ENOENT: this user has no such job, or the job
 * no such layer. EBUSY: the socket has data underway. EINVAL: another size.
 */
#define MERCURY_SOL 0x4d43
#define MERCURY_SO_LAYER 1

struct mercury_socket_layer {
    uint32_t job;
    uint32_t layer;
};

enum mercury_state {
    MERCURY_STATE_CONNECTED = 0, /* a daemon knows the job */
    MERCURY_STATE_FALLBACK = 1
};

struct mercury_status {
    enum mercury_state state;
    unsigned int job; /* its number in the marks, if connected */
    size_t classes;
    size_t sockets; /* that were assigned and are remembered */
    size_t marked;  /* of these, by the daemon */
    /* Why there is no daemon; "" if there is one. Valid until the next call for this client. */
    const char* why;
};

/* Never asks the daemon. SIZE is sizeof(struct mercury_status): it may grow at its end. */
int mercury_client_status(const struct mercury_client* client, struct mercury_status* status,
                          size_t size);

/*
 * Why the last call for this client that returned an error did, in a sentence; "" if none has.
 * Valid until the next call for this client.
 */
const char* mercury_client_error(const struct mercury_client* client);

#ifdef __cplusplus
}
#endif

#endif
