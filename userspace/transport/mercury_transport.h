/* SPDX-License-Identifier: MIT */
/*
 * Push-pull for programs that are not C++: every worker of a training job hands over the gradient
 * of a tensor and gets back its sum, or mean, over all workers. mercury-server(8) adds them up.
 *
 *     struct mercury_worker *worker = mercury_worker_new("resnet", rank, workers);
 *     mercury_worker_add_server(worker, "10.0.0.1:7700-7701");
 *     mercury_worker_add_tensor(worker, "fc.weight", MERCURY_ELEMENT_F32, elements, 0,
 *                               MERCURY_REDUCTION_MEAN);
 *     mercury_worker_join(worker);
 *     uint64_t round;
 *     mercury_worker_push_pull(worker, 0, gradient, elements * 4, &round);
 *     ... the backward pass of other layers ...
 *     mercury_worker_wait(worker, 0, round, -1);
 *     mercury_worker_free(worker);
 *
 * Errors. A function that returns int returns 0, or MERCURY_FAILED and has changed nothing;
 * mercury_transport_error() tells why. Once a job has failed, all that was in flight and all that
 * follows fails with the same reason, which names the peer; the way back is to free the worker and
 * to join with a new one.
 *
 * Threads. Until mercury_worker_join() has returned, a worker is used by one thread at a time.
 * Then any number of threads may call mercury_worker_push_pull(), mercury_worker_push_pull_then(),
 * mercury_worker_wait(), mercury_worker_find_tensor() and mercury_worker_marking() at the same
 * time. mercury_worker_free() comes after all others have returned. A worker has one thread of its
 * own, from join to free, and does not survive fork().
 *
 * Strings are UTF-8, end with a zero byte, and are copied. No argument may be NULL unless it says
 * so. Sizes are bytes, except where they are said to be elements.
 */
#ifndef MERCURY_TRANSPORT_H
#define MERCURY_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MERCURY_FAILED (-1)

/* What functions take as an int; the numbers never change. */
enum mercury_element {
    MERCURY_ELEMENT_F32 = 0,
    MERCURY_ELEMENT_F16 = 1, /* these two are added up in f32 and rounded once, at the end */
    MERCURY_ELEMENT_BF16 = 2
};

enum mercury_reduction {
    MERCURY_REDUCTION_SUM = 0,
    MERCURY_REDUCTION_MEAN = 1 /* the sum times 1/workers */
};

/* In which order the workers' elements are added up. */
enum mercury_order {
    MERCURY_ORDER_ARRIVAL = 0, /* as they come: nobody waits, the last bits may vary */
    MERCURY_ORDER_RANK = 1     /* worker 0 + worker 1 + ...: the same bits in every run */
};

struct mercury_worker;

/* The library's, such as "0.1.0", which may be newer than this header. Static. */
const char* mercury_transport_version(void);

/*
 * Why the last call that failed in this thread did, in a sentence; "" if none has. It is the
 * library's, and stays as it is until this thread calls the library again.
 */
const char* mercury_transport_error(void);

/* ---- before joining: each of these is refused afterwards ---- */

/*
 * A worker, to be configured. JOB is the job's name at the servers, 1 to 256 bytes; RANK is 0 to
 * WORKERS - 1, a different one for each worker. What is out of range is refused by
 * mercury_worker_join(). NULL if there is no memory.
 */
struct mercury_worker* mercury_worker_new(const char* job, unsigned int rank, unsigned int workers);

/*
 * "HOST:PORT", or "HOST:FIRST-LAST" for several. At least one is needed, and the same ones in the
 * same order at all workers.
 */
int mercury_worker_add_server(struct mercury_worker* worker, const char* address);

/*
 * The next tensor; the first one has index 0. KEY has 1 to 256 bytes and is unique in the job.
 * ELEMENT is one of enum mercury_element; ELEMENTS is at least 1. PRIORITY_CLASS is 0 (needed
 * first) to 15: six classes are enough, cut at 1/8, 1/4, 1/2, 3/4 and 7/8 of all bytes from the
 * model's input. REDUCTION is one of enum mercury_reduction. All workers add the same tensors in
 * the same order.
 */
int mercury_worker_add_tensor(struct mercury_worker* worker, const char* key, int element,
                              size_t elements, unsigned int priority_class, int reduction);

/* What the servers were given by --token-file. Default: none. */
int mercury_worker_set_token(struct mercury_worker* worker, const char* token);

/* ORDER is one of enum mercury_order, the same at all workers. Default: MERCURY_ORDER_ARRIVAL. */
int mercury_worker_set_order(struct mercury_worker* worker, int order);

/*
 * Who marks the connections for sch_mercury. Unless ON is 0, mercuryd(8) does, here and at each
 * server's host, and no privilege is needed; PATH is its socket here, or NULL for what the
 * environment variable MERCURY_SOCKET says, or else /run/mercury/hints.sock. Where there is no
 * daemon, connections have SO_PRIORITY 1 to 6 instead, which sch_mercury reads with `key priority`.
 * mercury_worker_marking() tells which it is. Joining waits for an answer of the daemon for one
 * second at most, and only once if none comes; later nothing waits. Default: on, NULL.
 */
int mercury_worker_set_hints(struct mercury_worker* worker, int on, const char* path);

/*
 * Instead of hints, marks (SO_MARK) of JOB (0 to 255) of sch_mercury for all connections: for hosts
 * without a daemon, or a number that is to be the same everywhere. Both ends then need
 * CAP_NET_ADMIN or CAP_NET_RAW.
 */
int mercury_worker_set_marks(struct mercury_worker* worker, unsigned int job);

/*
 * The same with marks of the caller's: PUSH and PULL have one for each of CLASSES classes, of
 * which there are as many as the tensors have, or more. They are copied. Of the marks for PULL,
 * servers use the bits that sch_mercury reads by default (0x00ffffff).
 */
int mercury_worker_set_class_marks(struct mercury_worker* worker, const uint32_t* push,
                                   const uint32_t* pull, size_t classes);

/* Not 0: DSCP AF41 (class 0) down to AF11, for switches with priority queues. Default: 0. */
int mercury_worker_set_dscp(struct mercury_worker* worker, int on);

/*
 * Bytes that may be underway to this worker in all connections together; 0: TCP decides. Default:
 * 384 KiB. mercury_in_flight() tells what suits a network.
 */
int mercury_worker_set_in_flight(struct mercury_worker* worker, size_t bytes);

/* Milliseconds to reach all servers and be accepted, at least 1. Default: 60000. */
int mercury_worker_set_join_time(struct mercury_worker* worker, unsigned int milliseconds);

/* A server that says nothing for so many milliseconds (at least 1) is dead. Default: 10000. */
int mercury_worker_set_silence(struct mercury_worker* worker, unsigned int milliseconds);

/*
 * Connects to all servers, which need not be up yet, and waits until they have accepted this
 * worker; the other workers need not be there. What failed may be tried again.
 */
int mercury_worker_join(struct mercury_worker* worker);

/* ---- after joining ---- */

/* Who marks the connections of a worker; the numbers never change. */
enum mercury_marking {
    MERCURY_MARKING_NONE = 0,    /* nobody: hints are off, or the library cannot give any */
    MERCURY_MARKING_MARKS = 1,   /* the library, with mercury_worker_set_marks() */
    MERCURY_MARKING_DAEMON = 2,  /* mercuryd */
    MERCURY_MARKING_PRIORITY = 3 /* nobody: they have SO_PRIORITY only */
};

struct mercury_marking_status {
    int by;           /* one of enum mercury_marking */
    unsigned int job; /* its number in the daemon's marks */
    size_t connections;
    size_t marked; /* of these, by the daemon */
    /* Why there is no daemon, or what it has refused; "" if all is well. It is the library's, and
       stays as it is until this thread calls the library again. */
    const char* why;
};

/*
 * How it is now, which may change with the daemon. SIZE is sizeof(struct mercury_marking_status):
 * it may grow at its end. Never waits.
 */
int mercury_worker_marking(const struct mercury_worker* worker,
                           struct mercury_marking_status* status, size_t size);

/* The index of the tensor with this KEY, in *INDEX. */
int mercury_worker_find_tensor(const struct mercury_worker* worker, const char* key, size_t* index);

/*
 * Starts a round of the tensor number INDEX: pushes BUFFER, which has BYTES (the whole tensor), and
 * replaces it by the sum or mean. Never waits for the network. *ROUND, for mercury_worker_wait(),
 * counts from 1; ROUND may be NULL.
 *
 * After success BUFFER is the library's until mercury_worker_wait() has returned 0 or
 * MERCURY_FAILED for this round, or mercury_worker_free() has returned. A wrong BYTES is refused,
 * and so is a tensor that is still in flight.
 */
int mercury_worker_push_pull(struct mercury_worker* worker, size_t index, void* buffer,
                             size_t bytes, uint64_t* round);

/*
 * Tells the outcome of a round, once: ERROR is NULL if it is complete, or says why it never will
 * be and is valid during the call. BUFFER is the caller's again. It runs in the worker's own
 * thread, which moves no byte meanwhile, so it should be short. It may start the next round; it
 * must not free the worker or throw, and cannot wait for a round that is in flight.
 */
typedef void (*mercury_callback)(void* context, const char* error);

/* The same with a callback, which is called if and only if this returns 0. */
int mercury_worker_push_pull_then(struct mercury_worker* worker, size_t index, void* buffer,
                                  size_t bytes, mercury_callback callback, void* context);

/* What mercury_worker_wait() returns if the time was not enough. */
#define MERCURY_IN_FLIGHT 1

/*
 * Waits for this round of the tensor number INDEX: 0 when it is complete, MERCURY_FAILED if it
 * never will be, MERCURY_IN_FLIGHT after so many MILLISECONDS. 0 only asks; below 0 there is no
 * limit.
 */
int mercury_worker_wait(struct mercury_worker* worker, size_t index, uint64_t round,
                        int milliseconds);

/* ---- at any time ---- */

/*
 * Leaves the job, if it was joined, and frees everything; may take as long as silence is allowed
 * to last. Rounds in flight are abandoned, which ends the job for all workers: wait for them first.
 * NULL is allowed.
 */
void mercury_worker_free(struct mercury_worker* worker);

/*
 * To what the bytes underway towards one host are to be bounded, so that a switch with
 * SWITCH_BUFFER bytes does not overflow when all peers answer at once, and a link of
 * BITS_PER_SECOND is busy all the same. RTT_NS is the round trip without queues, in nanoseconds.
 * Servers and workers on one host share it. Never 0.
 */
size_t mercury_in_flight(size_t switch_buffer, uint64_t bits_per_second, uint64_t rtt_ns);

#ifdef __cplusplus
}
#endif

#endif
