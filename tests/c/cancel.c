/* pthread_cancel: a thread ends in a wait, and nowhere else, and leaves everything in order for the others.
 * One source for both versions of the API: -DUDAPL_1_2 takes the 1.2 headers.
 *
 * usage: cancel IA-NAME      prints "cancel: PASS" when every thread ended as it should and all objects work on
 */
#define _GNU_SOURCE
#ifdef UDAPL_1_2
#include <dat/udat.h>
#define LMR_CREATE(ia, region, length, pz, lmr, lkey, rkey, size, at) \
    dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, length, pz, DAT_MEM_PRIV_ALL_FLAG, lmr, lkey, rkey, size, at)
#define REMOTE_ADDRESS target_address
#else
#include <dat2/udat.h>
#define LMR_CREATE(ia, region, length, pz, lmr, lkey, rkey, size, at)                                               \
    dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, length, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, lmr, lkey, \
                   rkey, size, at)
#define REMOTE_ADDRESS virtual_address
#endif
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "need.h"

#define SIZE 4096
#define MOMENT 1000     /* microseconds */
#define TIMEOUT 30000000

/* An IA with two endpoints connected to each other. */
struct world {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async, dto, conn, soft, idle;
    DAT_CNO_HANDLE cno;
    DAT_PZ_HANDLE pz;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT key;
    DAT_RMR_CONTEXT remote_key;
    DAT_PSP_HANDLE psp;
    DAT_EP_HANDLE a, b;
    unsigned char memory[SIZE];
};

static char *ia_name;
static const DAT_OS_WAIT_PROXY_AGENT no_agent;

/* Polls for the next event of an EVD: no cancellation point. */
static DAT_EVENT polled(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) != DAT_SUCCESS)
        sched_yield();
    NEED(event.event_number == number);
    return event;
}

static void open_world(struct world *w)
{
    DAT_REGION_DESCRIPTION region = { .for_va = w->memory };
    DAT_CONN_QUAL qual = 0;
    DAT_IA_ATTR attr;
    DAT_VLEN size;
    DAT_VADDR at;
    DAT_EVENT event;

    w->async = DAT_HANDLE_NULL;
    CHECK(dat_ia_open(ia_name, 8, &w->async, &w->ia));
    CHECK(dat_ia_query(w->ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    CHECK(dat_pz_create(w->ia, &w->pz));
    CHECK(LMR_CREATE(w->ia, region, SIZE, w->pz, &w->lmr, &w->key, &w->remote_key, &size, &at));
    CHECK(dat_cno_create(w->ia, no_agent, &w->cno));
    CHECK(dat_evd_create(w->ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &w->dto));
    CHECK(dat_evd_create(w->ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &w->conn));
    CHECK(dat_evd_create(w->ia, 20, w->cno, DAT_EVD_SOFTWARE_FLAG, &w->soft));
    CHECK(dat_evd_create(w->ia, 20, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &w->idle));
    CHECK(dat_ep_create(w->ia, w->pz, w->dto, w->dto, w->conn, NULL, &w->a));
    CHECK(dat_ep_create(w->ia, w->pz, w->dto, w->dto, w->conn, NULL, &w->b));
    CHECK(dat_psp_create_any(w->ia, &qual, w->conn, DAT_PSP_CONSUMER_FLAG, &w->psp));
    CHECK(dat_ep_connect(w->a, attr.ia_address_ptr, qual, TIMEOUT, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = polled(w->conn, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, w->b, 0, NULL));
    polled(w->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    polled(w->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
}

static void close_world(struct world *w)
{
    CHECK(dat_ep_disconnect(w->a, DAT_CLOSE_ABRUPT_FLAG));
    polled(w->conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    polled(w->conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(dat_psp_free(w->psp));
    CHECK(dat_ep_free(w->a));
    CHECK(dat_ep_free(w->b));
    CHECK(dat_lmr_free(w->lmr));
    CHECK(dat_evd_free(w->dto));
    CHECK(dat_evd_free(w->conn));
    CHECK(dat_evd_free(w->soft));
    CHECK(dat_evd_free(w->idle));
    CHECK(dat_cno_free(w->cno));
    CHECK(dat_pz_free(w->pz));
    CHECK(dat_ia_close(w->ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static DAT_LMR_TRIPLET piece(struct world *w, unsigned offset, unsigned length)
{
    DAT_LMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.virtual_address = (DAT_VADDR)(uintptr_t)(w->memory + offset);
    t.segment_length = length;
    t.lmr_context = w->key;
    return t;
}

/* Posts a receive, a send and an RDMA write: three completions on one EVD. */
static void post(struct world *w)
{
    DAT_DTO_COOKIE cookie = { .as_64 = 7 };
    DAT_LMR_TRIPLET from = piece(w, 0, 64), to = piece(w, 2048, 64);
    DAT_RMR_TRIPLET there;
    memset(&there, 0, sizeof there);
    there.REMOTE_ADDRESS = (DAT_VADDR)(uintptr_t)(w->memory + 1024);
    there.segment_length = 64;
    there.rmr_context = w->remote_key;
    CHECK(dat_ep_post_recv(w->b, 1, &to, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    CHECK(dat_ep_post_send(w->a, 1, &from, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    CHECK(dat_ep_post_rdma_write(w->a, 1, &from, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
}

static void completed(const DAT_EVENT *event)
{
    NEED(event->event_number == DAT_DTO_COMPLETION_EVENT);
    NEED(event->event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
    NEED(event->event_data.dto_completion_event_data.user_cookie.as_64 == 7);
}

static void post_software(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = &ia_name;
    CHECK(dat_evd_post_se(evd, &event));
}

/* The work of a thread, and its state. */
struct job {
    struct world *w;
    void (*body)(struct job *);
    DAT_EVD_HANDLE evd;
    DAT_TIMEOUT timeout;
    DAT_COUNT threshold;
    atomic_int tid, cleaned, returned, stage;
    atomic_long posted, seen;
    pthread_t thread;
};

static void clean(void *arg)
{
    ((struct job *)arg)->cleaned++;
}

static void *run(void *arg)
{
    struct job *job = arg;
    pthread_cleanup_push(clean, job);
    job->tid = (int)syscall(SYS_gettid);
    job->body(job);
    pthread_cleanup_pop(0);
    return NULL;
}

static void start(struct job *job)
{
    NEED(pthread_create(&job->thread, NULL, run, job) == 0);
    while (!job->tid)
        sched_yield();
}

/* Checks that a thread, which is or was cancelled, ends as cancelled, and that its cleanup handler ran. */
static void ends_cancelled(struct job *job)
{
    void *value = NULL;
    NEED(pthread_join(job->thread, &value) == 0);
    NEED(value == PTHREAD_CANCELED);
    NEED(job->cleaned == 1 && job->returned == 0);
}

/* Waits until the thread sleeps in the kernel. */
static void asleep(struct job *job)
{
    char name[64], state = 0;
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)job->tid);
    while (state != 'S') {
        FILE *file = fopen(name, "r");
        NEED(file != NULL);
        NEED(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        sched_yield();
    }
}

/* --- one wait --- */

static void waits_on_evd(struct job *job)
{
    DAT_EVENT event;
    DAT_COUNT more;
    dat_evd_wait(job->evd, job->timeout, job->threshold, &event, &more);
    job->returned++;
}

static void waits_on_cno(struct job *job)
{
    DAT_EVD_HANDLE evd;
    dat_cno_wait(job->w->cno, job->timeout, &evd);
    job->returned++;
}

static void waits_in_a_loop(struct job *job)
{
    DAT_EVENT event;
    DAT_COUNT more;
    for (;;)
        NEED(DAT_GET_TYPE(dat_evd_wait(job->evd, job->timeout, 1, &event, &more)) == DAT_TIMEOUT_EXPIRED);
}

static void waits_on_cno_in_a_loop(struct job *job)
{
    DAT_EVD_HANDLE evd;
    for (;;)
        NEED(DAT_GET_TYPE(dat_cno_wait(job->w->cno, job->timeout, &evd)) == DAT_QUEUE_EMPTY);
}

/* Checks that every object still works for other threads. */
static void works_on(struct world *w)
{
    DAT_EVD_HANDLE woken;
    DAT_EVENT event;
    DAT_COUNT more, i;

    post_software(w->idle);
    CHECK(dat_evd_wait(w->idle, TIMEOUT, 1, &event, &more));
    NEED(event.event_number == DAT_SOFTWARE_EVENT && more == 0);
    post_software(w->soft);
    CHECK(dat_cno_wait(w->cno, TIMEOUT, &woken));
    NEED(woken == w->soft);
    CHECK(dat_evd_dequeue(w->soft, &event));
    post(w);
    for (i = 0; i < 3; i++) {
        CHECK(dat_evd_wait(w->dto, TIMEOUT, 1, &event, &more));
        completed(&event);
    }
    NEED(DAT_GET_TYPE(dat_evd_dequeue(w->dto, &event)) == DAT_QUEUE_EMPTY);
    NEED(DAT_GET_TYPE(dat_evd_dequeue(w->conn, &event)) == DAT_QUEUE_EMPTY);
}

static void waits(struct world *w)
{
    static const DAT_TIMEOUT timeouts[] = { DAT_TIMEOUT_INFINITE, 600000000, 0, 1, 200 };
    DAT_EVD_HANDLE evds[] = { w->dto, w->conn, w->idle, DAT_HANDLE_NULL };
    unsigned i, j, round;

    for (i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        int lasts = timeouts[i] > MOMENT;
        for (j = 0; j < sizeof evds / sizeof *evds; j++)
            for (round = 0; round < 6; round++) {
                struct job job = { .w = w, .evd = evds[j], .timeout = timeouts[i], .threshold = 1 };
                if (evds[j] != DAT_HANDLE_NULL)
                    job.body = lasts ? waits_on_evd : waits_in_a_loop;
                else
                    job.body = lasts ? waits_on_cno : waits_on_cno_in_a_loop;
                start(&job);
                if (lasts && round % 2 == 0)
                    asleep(&job);
                NEED(pthread_cancel(job.thread) == 0);
                ends_cancelled(&job);
                works_on(w);
            }
    }
}

/* Events that are queued while a thread waits for more stay queued. */
static void keeps_events(struct world *w)
{
    struct job job = { .w = w, .body = waits_on_evd, .evd = w->idle, .timeout = DAT_TIMEOUT_INFINITE, .threshold = 2 };
    DAT_EVENT event;

    post_software(w->idle);
    start(&job);
    asleep(&job);
    NEED(pthread_cancel(job.thread) == 0);
    ends_cancelled(&job);
    CHECK(dat_evd_dequeue(w->idle, &event));
    works_on(w);
}

/* One of several sleeping threads is cancelled, whatever its role: the others are still woken. */
static void others_go_on(struct world *w)
{
    DAT_EVD_HANDLE evds[] = { w->dto, w->conn, w->idle };
    unsigned victim, i;

    for (victim = 0; victim < 2; victim++) {
        struct job jobs[3];
        memset(jobs, 0, sizeof jobs);
        for (i = 0; i < 3; i++) {
            unsigned at = (victim + i) % 3;
            jobs[at].w = w;
            jobs[at].body = waits_on_evd;
            jobs[at].evd = evds[at];
            jobs[at].timeout = DAT_TIMEOUT_INFINITE;
            jobs[at].threshold = 1;
            start(&jobs[at]);
            asleep(&jobs[at]);
        }
        NEED(pthread_cancel(jobs[victim].thread) == 0);
        ends_cancelled(&jobs[victim]);
        post_software(w->idle);
        NEED(pthread_join(jobs[2].thread, NULL) == 0);
        NEED(jobs[2].returned == 1);
        if (victim == 1) {
            post(w);
            NEED(pthread_join(jobs[0].thread, NULL) == 0);
            NEED(jobs[0].returned == 1);
            for (i = 0; i < 2; i++)
                polled(w->dto, DAT_DTO_COMPLETION_EVENT);
        } else {
            NEED(pthread_cancel(jobs[1].thread) == 0);
            ends_cancelled(&jobs[1]);
        }
        works_on(w);
    }
}

/* --- requests that wait --- */

static void disabled(struct job *job)
{
    DAT_EVENT event;
    DAT_COUNT more;
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    CHECK(dat_evd_wait(job->w->idle, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    NEED(old == PTHREAD_CANCEL_DISABLE);
    job->seen = 1;
    dat_evd_wait(job->w->idle, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    job->returned++;
}

static void where_it_is_disabled(struct world *w)
{
    struct job job = { .w = w, .body = disabled };
    start(&job);
    asleep(&job);
    NEED(pthread_cancel(job.thread) == 0);
    post_software(w->idle);
    ends_cancelled(&job);
    NEED(job.seen == 1);
    works_on(w);
}

/* With a cancellation pending all the time: no call acts on it but the final wait, which ends the thread. */
static void calls_everything(struct job *job)
{
    static struct world own;
    DAT_EVD_PARAM evd;
    DAT_EP_PARAM ep;
    DAT_CNO_PARAM cno;
    DAT_LMR_PARAM lmr;
    DAT_EVENT event;
    DAT_COUNT more;
    int i, j, state;

    pthread_cancel(pthread_self());
    open_world(&own);
    job->stage = 1;
    for (i = 0; i < 200; i++) {
        post(&own);
        for (j = 0; j < 3; j++)
            polled(own.dto, DAT_DTO_COMPLETION_EVENT);
    }
    job->stage = 2;
    for (i = 0; i < 20; i++) {
        post_software(own.soft);
        CHECK(dat_evd_dequeue(own.soft, &event));
    }
    CHECK(dat_evd_query(own.dto, DAT_EVD_FIELD_ALL, &evd));
    CHECK(dat_ep_query(own.a, DAT_EP_FIELD_ALL, &ep));
    CHECK(dat_cno_query(own.cno, DAT_CNO_FIELD_ALL, &cno));
    CHECK(dat_lmr_query(own.lmr, DAT_LMR_FIELD_ALL, &lmr));
    CHECK(dat_evd_modify_cno(own.idle, own.cno));
    CHECK(dat_evd_resize(own.idle, 40));
    CHECK(dat_evd_modify_cno(own.idle, DAT_HANDLE_NULL));
    job->stage = 3;
    close_world(&own);
    job->stage = 4;
    /* The cancellation state is the one that the program set. */
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    NEED(state == PTHREAD_CANCEL_ENABLE);
    dat_evd_wait(job->w->idle, 0, 1, &event, &more);
    job->returned++;
}

static void no_other_call_is_a_cancellation_point(struct world *w)
{
    struct job job = { .w = w, .body = calls_everything };
    void *value = NULL;

    start(&job);
    NEED(pthread_join(job.thread, &value) == 0);
    if (job.stage != 4)
        fprintf(stderr, "came to stage %d only\n", (int)job.stage);
    NEED(job.stage == 4);
    NEED(value == PTHREAD_CANCELED && job.cleaned == 1 && job.returned == 0);
    works_on(w);
}

/* --- at any moment --- */

static void storm(struct job *job)
{
    static const DAT_TIMEOUT timeouts[] = { DAT_TIMEOUT_INFINITE, 500, 0 };
    struct world *w = job->w;
    DAT_EVENT event;
    DAT_COUNT more;
    long i, left;

    for (i = 0;; i++) {
        post(w);
        job->posted += 3;
        for (left = 3; left > 0;) {
            DAT_RETURN code;
            /* No cancellation point may stand between an event and its counting: only waits are cancellation
             * points. */
            if (i % 2 == 0)
                code = dat_evd_dequeue(w->dto, &event);
            else
                code = dat_evd_wait(w->dto, timeouts[i % 3], 1, &event, &more);
            if (code != DAT_SUCCESS)
                continue;
            completed(&event);
            job->seen++;
            left--;
        }
        /* A polling thread provides a cancellation point, too. */
        if (i % 2 == 0)
            dat_evd_wait(w->idle, 0, 1, &event, &more);
    }
}

static void at_any_moment(struct world *w)
{
    unsigned seed = 1, round;

    for (round = 0; round < 60; round++) {
        struct job job = { .w = w, .body = storm };
        long until, spins;
        start(&job);
        seed = seed * 1103515245 + 12345;
        until = seed >> 16 & 0x3f;
        while (job.seen < until)
            sched_yield();
        for (spins = seed >> 20 & 0xfff; spins > 0; spins--)
            __asm__ volatile("" ::: "memory");
        NEED(pthread_cancel(job.thread) == 0);
        ends_cancelled(&job);
        NEED(job.seen <= job.posted && job.posted - job.seen <= 3);
        for (; job.seen < job.posted; job.seen++) {
            DAT_EVENT event = polled(w->dto, DAT_DTO_COMPLETION_EVENT);
            completed(&event);
        }
        works_on(w);
    }
}

int main(int argc, char **argv)
{
    static struct world w;

    NEED(argc == 2);
    ia_name = argv[1];
    open_world(&w);
    works_on(&w);
    no_other_call_is_a_cancellation_point(&w);
    where_it_is_disabled(&w);
    waits(&w);
    keeps_events(&w);
    others_go_on(&w);
    at_any_moment(&w);
    close_world(&w);
    printf("cancel: PASS\n");
    return 0;
}
