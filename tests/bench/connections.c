/* How quickly connections can be made at all on a device: what Debian's dtestcm does, bare, with nothing between librdmacm and
 * libibverbs and the program. As dtestcm: queue pairs are made beforehand, the client starts BURST attempts and then takes as many
 * answers, with 48 bytes of private data each way, which are looked at. One thread a side, which sleeps in the kernel until there is
 * an event: no other program can do with fewer calls.
 *
 * usage: connections -s ADDRESS COUNT      serves; prints "ready"
 *        connections -c ADDRESS COUNT      connects; prints "connections: MICROSECONDS usec" (for each) when all are up
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define BURST 100
#define PORT 45249
#define SOURCE_PORT 64999
#define DATA 48

#define NEED(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: not true: %s (%s)\n", __LINE__,          \
                    #condition, strerror(errno));                              \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static struct rdma_event_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp **qps;
static int count;

/* Private data of a request, and of its answer with the addition `more`. */
static uint8_t data[DATA];
static void fill(int more) {
    for (int i = 0; i < DATA; i++)
        data[i] = i + 1 + more;
}

/* Creates the queue pairs, in INIT. */
static void make(struct ibv_context *device, int port) {
    pd = ibv_alloc_pd(device);
    NEED(pd);
    cq = ibv_create_cq(device, 256, NULL, NULL, 0);
    NEED(cq);
    qps = calloc(count, sizeof *qps);
    NEED(qps);
    for (int i = 0; i < count; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = cq,
            .recv_cq = cq,
            .cap = {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
            .qp_type = IBV_QPT_RC,
        };
        qps[i] = ibv_create_qp(pd, &init);
        NEED(qps[i]);
        struct ibv_qp_attr attr = {
            .qp_state = IBV_QPS_INIT,
            .port_num = port,
            .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
        };
        NEED(!ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    }
}

/* Moves a queue pair to RTR and RTS. */
static void move(struct rdma_cm_id *id, struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    int mask;
    NEED(!rdma_init_qp_attr(id, &attr, &mask));
    NEED(!ibv_modify_qp(qp, &attr, mask));
    attr.qp_state = IBV_QPS_RTS;
    NEED(!rdma_init_qp_attr(id, &attr, &mask));
    NEED(!ibv_modify_qp(qp, &attr, mask));
}

static struct rdma_conn_param parameters(struct ibv_qp *qp) {
    return (struct rdma_conn_param){
        .private_data = data,
        .private_data_len = DATA,
        .responder_resources = 4,
        .initiator_depth = 4,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .qp_num = qp->qp_num,
    };
}

static struct sockaddr_in at(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    NEED(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    return to;
}

static struct rdma_cm_event *next(void) {
    struct rdma_cm_event *event;
    NEED(!rdma_get_cm_event(channel, &event));
    return event;
}

static void look(const struct rdma_cm_event *event) {
    NEED(event->param.conn.private_data_len >= DATA);
    NEED(!memcmp(event->param.conn.private_data, data, DATA));
}

static void serve(const char *address) {
    struct sockaddr_in here = at(address, PORT);
    struct rdma_cm_id *listener;
    NEED(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    NEED(!rdma_bind_addr(listener, (struct sockaddr *)&here));
    make(listener->verbs, listener->port_num);
    NEED(!rdma_listen(listener, 0));
    puts("ready");
    fflush(stdout);
    for (int asked = 0, up = 0, gone = 0; gone < count;) {
        struct rdma_cm_event *event = next();
        struct rdma_cm_id *id = event->id;
        switch (event->event) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            fill(0);
            look(event);
            NEED(asked < count);
            id->context = qps[asked];
            move(id, qps[asked]);
            fill(1);
            struct rdma_conn_param answer = parameters(qps[asked++]);
            NEED(!rdma_accept(id, &answer));
            break;
        case RDMA_CM_EVENT_ESTABLISHED:
            up++;
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            gone++;
            break;
        default:
            break;
        }
        NEED(!rdma_ack_cm_event(event));
    }
}

static double now(void) {
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * 1e6 + time.tv_usec;
}

static void connect_all(const char *address) {
    struct sockaddr_in to = at(address, PORT), from = at(address, SOURCE_PORT);
    struct rdma_cm_id *probe, **ids = calloc(count, sizeof *ids);
    NEED(ids);
    from.sin_port = 0;
    NEED(!rdma_create_id(channel, &probe, NULL, RDMA_PS_TCP));
    NEED(!rdma_bind_addr(probe, (struct sockaddr *)&from));
    make(probe->verbs, probe->port_num);
    from.sin_port = htons(SOURCE_PORT);

    double start = now();
    for (int begun = 0, up = 0; up < count;) {
        for (int i = 0; i < BURST && begun < count; i++, begun++) {
            int yes = 1;
            NEED(!rdma_create_id(channel, &ids[begun], qps[begun], RDMA_PS_TCP));
            NEED(!rdma_set_option(ids[begun], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
            NEED(!rdma_resolve_addr(ids[begun], (struct sockaddr *)&from, (struct sockaddr *)&to, 2000));
        }
        while (up < begun) {
            struct rdma_cm_event *event = next();
            struct rdma_cm_id *id = event->id;
            struct ibv_qp *qp = id->context;
            switch (event->event) {
            case RDMA_CM_EVENT_ADDR_RESOLVED:
                NEED(!rdma_resolve_route(id, 2000));
                break;
            case RDMA_CM_EVENT_ROUTE_RESOLVED:
                fill(0);
                struct rdma_conn_param ask = parameters(qp);
                NEED(!rdma_connect(id, &ask));
                break;
            case RDMA_CM_EVENT_CONNECT_RESPONSE:
                fill(1);
                look(event);
                move(id, qp);
                NEED(!rdma_establish(id));
                up++;
                break;
            default:
                fprintf(stderr, "unexpected: %s %d\n", rdma_event_str(event->event), event->status);
                exit(1);
            }
            NEED(!rdma_ack_cm_event(event));
        }
    }
    printf("connections: %.2f usec\n", (now() - start) / count);
    for (int i = 0; i < count; i++)
        NEED(!rdma_disconnect(ids[i]));
}

int main(int argc, char **argv) {
    NEED(argc == 4);
    count = atoi(argv[3]);
    channel = rdma_create_event_channel();
    NEED(channel);
    if (!strcmp(argv[1], "-s"))
        serve(argv[2]);
    else
        connect_all(argv[2]);
    return 0;
}
