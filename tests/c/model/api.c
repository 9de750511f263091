#include "api.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

/* Seconds after which a call of the second process hangs. */
#define LONGEST_CALL 120

/* Any function of the API: all arguments are words, also the two of a structure that is passed by value. */
typedef uint32_t (*any_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                 uint64_t, uint64_t, uint64_t, uint64_t);

#define AS_POINTER(name) (void *)dat_##name,
static void *const functions[] = {FUNCTIONS(AS_POINTER)};
#define AS_NAME(name) "dat_" #name,
const char *const function_names[] = {FUNCTIONS(AS_NAME)};

struct shared *shared;
enum function called;

int process_of(int node)
{
    return node == 1 && run.processes == 2;
}

static void copy_data(const void *data, int size)
{
    shared->got_size = size;
    if (size > (int)sizeof shared->got)
        size = sizeof shared->got;
    if (size > 0)
        memcpy(shared->got, data, size);
}

/* Makes the call, and copies what the result points to: only this process can read it. */
static uint32_t perform(enum function function, const uint64_t *w)
{
    uint32_t code = ((any_function)functions[function])(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10],
                                                        w[11], w[12]);
    if (code != DAT_SUCCESS)
        return code;
    if (function == F_cr_query)
        copy_data(shared->cr.private_data, shared->cr.private_data_size);
    if (function == F_evd_wait || function == F_evd_dequeue) {
        DAT_CONNECTION_EVENT_DATA *event = &shared->event.event_data.connect_event_data;
        if (shared->event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED)
            copy_data(event->private_data, event->private_data_size);
    }
    if (function == F_ia_query)
        memcpy(shared->got, shared->ia.ia_address_ptr, sizeof(struct sockaddr_in6));
    return code;
}

static void serve(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        while (sem_wait(&shared->go))
            ;
        if (shared->function == FUNCTION_COUNT)
            _exit(0);
        shared->result = perform(shared->function, shared->words);
        sem_post(&shared->done);
    }
}

void start_api(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_init(&shared->go, 1, 0);
    sem_init(&shared->done, 1, 0);
    if (run.processes == 2 && (run.second = fork()) == 0)
        serve();
}

void end_api(void)
{
    if (!run.second)
        return;
    shared->function = FUNCTION_COUNT;
    sem_post(&shared->go);
    waitpid(run.second, NULL, 0);
}

static uint32_t ask_second(enum function function, const uint64_t *words)
{
    struct timespec until;
    int status, waited = 0;
    shared->function = function;
    memcpy(shared->words, words, sizeof shared->words);
    sem_post(&shared->go);
    for (;;) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (!sem_timedwait(&shared->done, &until))
            return shared->result;
        if (waitpid(run.second, &status, WNOHANG) == run.second) {
            run.second = 0;
            fail("the second process ended in %s with status %#x", function_names[function], status);
        }
        if (errno == ETIMEDOUT && ++waited == LONGEST_CALL)
            fail("%s hangs", function_names[function]);
    }
}

uint32_t call_words(int node, enum function function, const uint64_t *words, int count)
{
    char arguments[150] = "";
    int i, length = 0;
    uint32_t code;
    called = function;
    for (i = 0; i < count && length < 120; i++)
        length += snprintf(arguments + length, sizeof arguments - length, "%llx ", (unsigned long long)words[i]);
    note("%d %s(%s) ...", node, function_names[function], arguments);
    alarm(LONGEST_CALL);
    code = process_of(node) ? ask_second(function, words) : perform(function, words);
    alarm(0);
    unnote();
    note("%d %s(%s) = %x", node, function_names[function], arguments, code);
    return code;
}
