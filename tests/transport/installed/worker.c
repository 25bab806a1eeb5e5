/* SPDX-License-Identifier: MIT */
/*
 * usage: worker SERVER RANK WORKERS
 *
 * Pushes 1000 times RANK + 1 and checks that the sum comes back: a program that has nothing but
 * what was installed.
 */
#include <mercury_transport.h>
#include <stdio.h>
#include <stdlib.h>

#define ELEMENTS 1000

static int fail(const char* what) {
    fprintf(stderr, "%s: %s\n", what, mercury_transport_error());
    return 1;
}

int main(int argc, char** argv) {
    static float buffer[ELEMENTS];
    unsigned int rank, workers;
    uint64_t round;
    size_t i;

    if (argc != 4)
        return 2;
    rank = (unsigned int)strtoul(argv[2], NULL, 10);
    workers = (unsigned int)strtoul(argv[3], NULL, 10);

    struct mercury_worker* worker = mercury_worker_new("installed", rank, workers);
    if (worker == NULL || mercury_worker_add_server(worker, argv[1]) != 0 ||
        mercury_worker_add_tensor(worker, "tensor", MERCURY_ELEMENT_F32, ELEMENTS, 0,
                                  MERCURY_REDUCTION_SUM) != 0 ||
        mercury_worker_join(worker) != 0)
        return fail("join");

    for (i = 0; i < ELEMENTS; ++i)
        buffer[i] = (float)(rank + 1);
    if (mercury_worker_push_pull(worker, 0, buffer, sizeof(buffer), &round) != 0)
        return fail("push");
    if (mercury_worker_wait(worker, 0, round, -1) != 0)
        return fail("wait");
    for (i = 0; i < ELEMENTS; ++i) {
        if (buffer[i] != (float)(workers * (workers + 1) / 2)) {
            fprintf(stderr, "element %zu is %g\n", i, (double)buffer[i]);
            return 1;
        }
    }
    mercury_worker_free(worker);
    puts("the sum is right");
    return 0;
}
