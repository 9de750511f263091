/* The trace of a run, and the end of one that failed. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The run at hand: what a failure prints, so that it can be repeated. */
struct run {
    uint64_t seed;
    int step, steps, processes;
    const char *ia;
    bool rxe; /* the IA is one of rdma_rxe: rxe.h */
    bool trace;
    pid_t second; /* the other process, 0 without one */
};
extern struct run run;

/* Adds a line to the trace. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Removes the last line: the call told nothing. */
void unnote(void);

/* Prints the failure, the last calls and how to repeat it; ends the run. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
