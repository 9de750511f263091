#include "report.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Lines of the trace that a failure prints. */
#define KEPT 60

struct run run;
static char kept[KEPT][200];
static unsigned written, printed;

/* Prints the last line, which stays as it is from now on. */
static void print_last(void)
{
    if (run.trace && printed < written)
        fprintf(stderr, "%s\n", kept[(written - 1) % KEPT]);
    printed = written;
}

void note(const char *format, ...)
{
    va_list arguments;
    print_last();
    va_start(arguments, format);
    vsnprintf(kept[written++ % KEPT], sizeof kept[0], format, arguments);
    va_end(arguments);
}

void unnote(void)
{
    written--;
    kept[written % KEPT][0] = '\0';
}

void fail(const char *format, ...)
{
    unsigned at;
    va_list arguments;
    print_last();
    if (!run.trace)
        for (at = written < KEPT ? 0 : written - KEPT; at < written; at++)
            fprintf(stderr, "%s\n", kept[at % KEPT]);
    fprintf(stderr, "model: FAIL seed %llu, step %d: ", (unsigned long long)run.seed, run.step);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nagain: model --seed %llu --steps %d --processes %d %s%s\n", (unsigned long long)run.seed, run.steps,
            run.processes, run.rxe ? "--rxe " : "", run.ia);
    if (run.second)
        kill(run.second, SIGKILL);
    _exit(1);
}
