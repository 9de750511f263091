/* fork(2) in a process with an open IA: children that exit, that use what is not theirs, and that open an IA of
 * their own, while the parent's connection goes on.
 *
 * usage: fork IA-NAME      prints "fork: PASS"
 */
#define main two_endpoints
#include "two_endpoints.c"
#undef main
#include <pthread.h>
#include <sys/wait.h>

static DAT_RETURN waited;

/* Waits for an event that never comes, until the EVD is freed. */
static void *waiter(void *evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    waited = dat_evd_wait((DAT_EVD_HANDLE)evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    return NULL;
}

/* Sends data from a to b and compares each byte. */
static void talk(struct side *a, struct side *b, int fill)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET local = piece(b, 0, 1000);
    DAT_RMR_TRIPLET there = remote(b, 2000, 1000);
    memset(a->memory, fill, SIZE);
    memset(b->memory, 0, SIZE);
    cookie.as_64 = 1;
    CHECK(dat_ep_post_recv(b->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    local = piece(a, 0, 1000);
    cookie.as_64 = 2;
    CHECK(dat_ep_post_rdma_write(a->ep, 1, &local, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    cookie.as_64 = 3;
    CHECK(dat_ep_post_send(a->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    done(a, 2, 1000);
    done(a, 3, 1000);
    done(b, 1, 1000);
    NEED(!memcmp(a->memory, b->memory, 1000) && !memcmp(a->memory, b->memory + 2000, 1000));
    NEED(b->memory[1000] == 0 && b->memory[3000] == 0);
}

/* An attempt without an answer ends at its timeout: the timer thread works in the child. */
static void late(char *name)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual = 0;
    DAT_IA_ATTR attr;
    struct side a;
    CHECK(dat_ia_open(name, 8, &async_evd, &ia));
    CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    CHECK(dat_pz_create(ia, &pz));
    make(ia, pz, &a, 1);
    CHECK(dat_psp_create_any(ia, &qual, async_evd == DAT_HANDLE_NULL ? async_evd : a.conn, DAT_PSP_CONSUMER_FLAG, &psp));
    CHECK(dat_ep_connect(a.ep, attr.ia_address_ptr, qual, 200000, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    next(a.conn, DAT_CONNECTION_REQUEST_EVENT);
    next(a.conn, DAT_CONNECTION_EVENT_TIMED_OUT);
    CHECK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
}

/* The parent's handles are invalid in the child. */
static void foreign(DAT_IA_HANDLE ia, struct side *a)
{
    DAT_EVENT event;
    DAT_PZ_HANDLE pz;
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET there;
    cookie.as_64 = 1;
    NEED(DAT_GET_TYPE(dat_ep_post_send(a->ep, 0, NULL, cookie, DAT_COMPLETION_DEFAULT_FLAG)) == DAT_INVALID_HANDLE);
    local = piece(a, 0, 100);
    there = remote(a, 200, 100);
    NEED(DAT_GET_TYPE(dat_ep_post_send(a->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_ep_post_recv(a->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_ep_post_rdma_write(a->ep, 1, &local, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG)) ==
         DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_evd_dequeue(a->dto, &event)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_ep_disconnect(a->ep, DAT_CLOSE_ABRUPT_FLAG)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_ep_free(a->ep)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_lmr_free(a->lmr)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_pz_create(ia, &pz)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG)) == DAT_INVALID_HANDLE);
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, idle;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual = 0;
    DAT_IA_ATTR attr;
    DAT_EVENT event;
    struct side a, b;
    pthread_t thread;
    int child;

    NEED(argc == 2);
    alarm(100);
    CHECK(dat_ia_open(argv[1], 8, &async_evd, &ia));
    CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    CHECK(dat_pz_create(ia, &pz));
    make(ia, pz, &a, 1);
    make(ia, pz, &b, 2);
    CHECK(dat_psp_create_any(ia, &qual, b.conn, DAT_PSP_CONSUMER_FLAG, &psp));
    CHECK(dat_ep_connect(a.ep, attr.ia_address_ptr, qual, 50000000, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(b.conn, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, 0, NULL));
    next(a.conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    next(b.conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(dat_evd_create(ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &idle));
    NEED(!pthread_create(&thread, NULL, waiter, (void *)idle));
    talk(&a, &b, 10);

    for (child = 0; child < 4; child++) {
        int status;
        pid_t pid = fork();
        NEED(pid >= 0);
        if (pid == 0) {
            alarm(60);
            switch (child) {
            case 0: _exit(0);
            case 1: exit(0);
            case 2: foreign(ia, &a); exit(0);
            default:
                late(argv[1]);
                exit(two_endpoints(argc, argv));
            }
        }
        talk(&a, &b, 20 + child);
        NEED(waitpid(pid, &status, 0) == pid);
        if (status != 0)
            fprintf(stderr, "child %d ended with status %#x\n", child, status);
        NEED(status == 0);
        talk(&a, &b, 30 + child);
    }

    CHECK(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
    next(a.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    next(b.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(dat_psp_free(psp));
    CHECK(dat_evd_free(idle));
    NEED(!pthread_join(thread, NULL));
    NEED(DAT_GET_TYPE(waited) == DAT_ABORT);
    unmake(&a);
    unmake(&b);
    CHECK(dat_pz_free(pz));
    CHECK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    printf("fork: PASS\n");
    return 0;
}
