/*
 * A DAT provider over UNIX sockets, in C: connections with messages, RDMA and atomics between processes of one host. dat_transport.h
 * documents each function. Keys and the checks of each access are the library's (dat_transport_gather and its companions).
 *
 * One lock guards all queue pairs. Each connection has a thread that reads and one that writes; neither holds the lock while it does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include <dat_transport.h>

#define MAX_MESSAGE (64u << 20)
#define MAX_PRIVATE 256u

/* Frames are requests (DAT_TRANSPORT_SEND ...), an answer to each in order, or the news that the sender broke the connection. */
enum { ANSWER = 100, BROKEN };

struct frame {
    uint32_t kind, solicited, status, immediate, key, size; /* size: bytes of data behind the header */
    uint64_t address, length, operands[2];                  /* length: bytes to read */
};
struct item {
    struct item *next;
    struct frame frame;
    char data[];
};
struct queue {
    struct item *first, **end;
};

/* A posted request, or a receive (then only id and iov count). */
struct work {
    struct work *next;
    struct frame frame;
    uint64_t id, length;
    uint32_t flags, sent, iov_count;
    struct item *answer;
    DAT_LMR_TRIPLET iov[];
};
struct works {
    struct work *first, **end;
};

struct adapter {
    dat_transport_ia ia;
    struct in_addr address;
};

/* A connection or the attempt to make one. The queue pair leaves it when either ends; the threads go on until the socket ends. */
struct link {
    struct qp *qp;
    dat_transport_ia ia;
    int fd, refs, closing, active;
    struct queue out;
    pthread_cond_t more;
    struct sockaddr_un peer;
    socklen_t peer_size;
    struct hello {
        struct sockaddr_storage from;
        uint32_t verdict, size;
        char data[MAX_PRIVATE];
    } hello;
};

enum state { IDLE, ATTEMPT, CONNECTED, ENDED };
struct qp {
    const struct dat_transport_pz *pz;
    dat_transport_cq *recv_cq, *request_cq;
    enum state state;
    uint64_t token;
    uint16_t port;
    struct link *link;
    struct works requests, receives;
    struct queue arrived;
};

struct request {
    int fd;
    uint16_t qual;
};

struct listener {
    int fd, stopped;
    struct adapter *adapter;
    uint64_t token, qual;
    struct sockaddr_un name;
    socklen_t name_size;
    pthread_t thread;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- lists ---- */

static void put(struct queue *queue, struct item *item)
{
    if (!queue->first)
        queue->end = &queue->first;
    item->next = NULL;
    *queue->end = item;
    queue->end = &item->next;
}

static struct item *take(struct queue *queue)
{
    struct item *item = queue->first;
    if (item)
        queue->first = item->next;
    return item;
}

static struct work *add_work(struct works *list, uint64_t id, const DAT_LMR_TRIPLET *iov, uint32_t count)
{
    struct work *work = calloc(1, sizeof *work + count * sizeof *iov);
    if (!work)
        return NULL;
    work->id = id;
    work->iov_count = count;
    if (count)
        memcpy(work->iov, iov, count * sizeof *iov);
    if (!list->first)
        list->end = &list->first;
    *list->end = work;
    list->end = &work->next;
    return work;
}

static void drop_first(struct works *list)
{
    struct work *work = list->first;
    list->first = work->next;
    free(work->answer);
    free(work);
}

static struct item *new_item(uint32_t kind, uint32_t size)
{
    struct item *item = calloc(1, sizeof *item + size);
    if (item) {
        item->frame.kind = kind;
        item->frame.size = size;
    }
    return item;
}

/* ---- sockets ---- */

static int read_all(int fd, void *to, size_t size)
{
    for (char *at = to; size;) {
        ssize_t got = recv(fd, at, size, 0);
        if (got <= 0)
            return -1;
        at += got;
        size -= got;
    }
    return 0;
}

static int write_all(int fd, const void *from, size_t size)
{
    for (const char *at = from; size;) {
        ssize_t done = send(fd, at, size, MSG_NOSIGNAL);
        if (done <= 0)
            return -1;
        at += done;
        size -= done;
    }
    return 0;
}

/* Names are in the abstract name space, one for each qualifier of an address. */
static socklen_t name(struct sockaddr_un *to, struct in_addr address, uint64_t qual)
{
    char text[INET_ADDRSTRLEN];
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX;
    inet_ntop(AF_INET, &address, text, sizeof text);
    int length = snprintf(to->sun_path + 1, sizeof to->sun_path - 1, "dat-c-example/%s/%llu", text, (unsigned long long)qual);
    return offsetof(struct sockaddr_un, sun_path) + 1 + length;
}

static void set_address(struct sockaddr_storage *to, struct in_addr address, uint16_t port)
{
    struct sockaddr_in *in = (struct sockaddr_in *)to;
    memset(to, 0, sizeof *to);
    in->sin_family = AF_INET;
    in->sin_addr = address;
    in->sin_port = htons(port);
}

static DAT_RETURN start(pthread_t *thread, void *(*run)(void *), void *with)
{
    pthread_t detached;
    if (pthread_create(thread ? thread : &detached, NULL, run, with))
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    if (!thread)
        pthread_detach(detached);
    return DAT_SUCCESS;
}

/* ---- queue pairs; the lock is held ---- */

static void leave(struct link *link)
{
    if (--link->refs)
        return;
    if (link->fd >= 0)
        close(link->fd);
    for (struct item *item; (item = take(&link->out));)
        free(item);
    pthread_cond_destroy(&link->more);
    free(link);
}

static int transmit_item(struct qp *qp, struct item *item)
{
    if (!item || !qp->link) {
        free(item);
        return -1;
    }
    put(&qp->link->out, item);
    pthread_cond_signal(&qp->link->more);
    return 0;
}

static void complete(struct qp *qp, const struct work *work, uint32_t status)
{
    struct dat_transport_completion done = { .id = work->id, .status = status, .length = work->length };
    if (status || work->flags & DAT_TRANSPORT_SIGNALED)
        dat_transport_complete(qp->request_cq, &done);
}

static void flush(struct qp *qp)
{
    for (; qp->requests.first; drop_first(&qp->requests))
        complete(qp, qp->requests.first, DAT_DTO_ERR_FLUSHED);
    for (; qp->receives.first; drop_first(&qp->receives)) {
        struct dat_transport_completion done = { .id = qp->receives.first->id, .status = DAT_DTO_ERR_FLUSHED, .receive = DAT_TRANSPORT_RECEIVE };
        dat_transport_complete(qp->recv_cq, &done);
    }
}

/* Ends the connection or attempt: what is outstanding is flushed, and the end of a connection reported. */
static void end(struct qp *qp, uint32_t outcome)
{
    enum state was = qp->state;
    struct link *link = qp->link;
    if (was == IDLE)
        return;
    qp->state = ENDED;
    flush(qp);
    for (struct item *item; (item = take(&qp->arrived));)
        free(item);
    if (!link)
        return;
    if (was == CONNECTED || outcome != DAT_TRANSPORT_DISCONNECTED)
        dat_transport_connection(link->ia, qp->token, outcome, NULL, 0);
    if (was == ATTEMPT && link->fd >= 0)
        shutdown(link->fd, SHUT_RDWR);
    qp->link = NULL;
    link->qp = NULL;
    link->closing = 1;
    pthread_cond_signal(&link->more);
    leave(link);
}

static void break_it(struct qp *qp)
{
    transmit_item(qp, new_item(BROKEN, 0));
    end(qp, DAT_TRANSPORT_BROKEN);
}

static int reads(const struct work *work)
{
    return work->frame.kind >= DAT_TRANSPORT_READ && work->frame.kind <= DAT_TRANSPORT_FETCH_ADD;
}

/* Sends a request; returns the status of one that cannot be sent. */
static uint32_t send_request(struct qp *qp, struct work *work)
{
    uint32_t size = reads(work) ? 0 : work->length, status = DAT_DTO_SUCCESS;
    struct item *item = work->length <= MAX_MESSAGE ? new_item(work->frame.kind, size) : NULL;
    if (!item)
        return DAT_DTO_ERR_LOCAL_LENGTH;
    item->frame = work->frame;
    item->frame.size = size;
    item->frame.length = work->length;
    if (!reads(work))
        status = dat_transport_gather(qp->pz, work->iov, work->iov_count, item->data, size);
    if (status)
        free(item);
    else
        transmit_item(qp, item);
    return status;
}

/* Completes requests that have answers, and sends those that may be sent, both in the order of the posts. */
static void advance(struct qp *qp)
{
    for (struct work *work; (work = qp->requests.first) && work->answer; drop_first(&qp->requests)) {
        struct item *answer = work->answer;
        uint32_t status = answer->frame.status;
        if (!status && reads(work))
            status = answer->frame.size == work->length ? dat_transport_scatter(qp->pz, work->iov, work->iov_count, answer->data, answer->frame.size)
                                                        : DAT_DTO_ERR_BAD_RESPONSE;
        complete(qp, work, status);
        if (status) {
            drop_first(&qp->requests);
            break_it(qp);
            return;
        }
    }
    int reading = 0;
    for (struct work *work = qp->requests.first; work && qp->state == CONNECTED; work = work->next) {
        if (!work->sent) {
            uint32_t status;
            if (work->flags & DAT_TRANSPORT_FENCE && reading)
                return;
            work->sent = 1;
            if ((status = send_request(qp, work))) {
                if (!(work->answer = new_item(ANSWER, 0))) {
                    break_it(qp);
                    return;
                }
                work->answer->frame.status = status;
                if (work == qp->requests.first)
                    advance(qp);
                return;
            }
        }
        if (work->answer && work->answer->frame.status)
            return; /* it has failed: nothing behind it is sent */
        reading |= reads(work);
    }
}

/* Delivers a message to the first receive; returns the status for the sender. */
static uint32_t deliver(struct qp *qp, const struct item *item)
{
    const struct frame *frame = &item->frame;
    struct work *receive = qp->receives.first;
    struct dat_transport_completion done = { .id = receive->id, .length = frame->size, .immediate = frame->immediate, .solicited = frame->solicited };
    done.receive = frame->kind == DAT_TRANSPORT_SEND ? DAT_TRANSPORT_RECEIVE : DAT_TRANSPORT_RECEIVE_IMMEDIATE;
    if (frame->kind == DAT_TRANSPORT_WRITE_IMMEDIATE)
        done.receive = DAT_TRANSPORT_RECEIVE_WRITE_IMMEDIATE;
    else
        done.status = dat_transport_scatter(qp->pz, receive->iov, receive->iov_count, item->data, frame->size);
    drop_first(&qp->receives);
    dat_transport_complete(qp->recv_cq, &done);
    return done.status ? DAT_DTO_ERR_REMOTE_RESPONDER : DAT_DTO_SUCCESS;
}

/* Executes a request of the peer; returns the answer. */
static struct item *execute(struct qp *qp, struct item *item)
{
    struct frame *frame = &item->frame;
    uint32_t kind = frame->kind, status = DAT_DTO_SUCCESS;
    uint32_t size = kind == DAT_TRANSPORT_READ ? frame->length : kind > DAT_TRANSPORT_READ ? 8 : 0;
    struct item *answer = new_item(ANSWER, size);
    if (!answer)
        return NULL;
    if (kind == DAT_TRANSPORT_WRITE || kind == DAT_TRANSPORT_WRITE_IMMEDIATE)
        status = dat_transport_write(qp->pz, frame->address, frame->key, item->data, frame->size);
    else if (kind == DAT_TRANSPORT_READ)
        status = dat_transport_read(qp->pz, frame->address, frame->key, answer->data, size);
    else if (kind > DAT_TRANSPORT_READ)
        status = dat_transport_atomic(qp->pz, frame->address, frame->key, kind, frame->operands, (uint64_t *)answer->data);
    if (!status && (kind == DAT_TRANSPORT_SEND || kind == DAT_TRANSPORT_SEND_IMMEDIATE || kind == DAT_TRANSPORT_WRITE_IMMEDIATE))
        status = deliver(qp, item);
    answer->frame.status = status;
    return answer;
}

/* Executes what arrived, until a message has to wait for a receive. */
static void serve(struct qp *qp)
{
    for (struct item *item; qp->state == CONNECTED && (item = qp->arrived.first);) {
        uint32_t kind = item->frame.kind;
        if (!qp->receives.first && (kind == DAT_TRANSPORT_SEND || kind == DAT_TRANSPORT_SEND_IMMEDIATE || kind == DAT_TRANSPORT_WRITE_IMMEDIATE))
            return;
        take(&qp->arrived);
        struct item *answer = execute(qp, item);
        uint32_t status = answer ? answer->frame.status : DAT_DTO_ERR_LOCAL_EP;
        free(item);
        transmit_item(qp, answer);
        if (status)
            end(qp, DAT_TRANSPORT_BROKEN);
    }
}

/* Takes a frame of the peer, and frees it. */
static void received(struct qp *qp, struct item *item)
{
    struct work *work = qp->requests.first;
    if (item->frame.kind == ANSWER) {
        while (work && (!work->sent || work->answer))
            work = work->next;
        if (work) {
            work->answer = item;
            advance(qp);
            return;
        }
    } else if (item->frame.kind <= DAT_TRANSPORT_FETCH_ADD && item->frame.kind != DAT_TRANSPORT_SEND_INVALIDATE && item->frame.length <= MAX_MESSAGE) {
        put(&qp->arrived, item);
        serve(qp);
        return;
    }
    free(item); /* BROKEN, or nonsense */
    end(qp, DAT_TRANSPORT_BROKEN);
}

/* ---- the threads of a connection ---- */

static void *writer(void *with)
{
    struct link *link = with;
    int failed = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct item *item = take(&link->out);
        if (item) {
            pthread_mutex_unlock(&lock);
            failed = failed || write_all(link->fd, &item->frame, sizeof item->frame + item->frame.size);
            free(item);
            pthread_mutex_lock(&lock);
        } else if (link->closing) {
            break;
        } else {
            pthread_cond_wait(&link->more, &lock);
        }
    }
    shutdown(link->fd, SHUT_WR);
    leave(link);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Exchanges the messages of the handshake; returns the outcome, and the peer's private data in `answer`. */
static uint32_t shake_hands(struct link *link, struct hello *answer)
{
    if (link->active) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&link->peer, link->peer_size)) {
            if (fd >= 0)
                close(fd);
            return DAT_TRANSPORT_NON_PEER_REJECTED;
        }
        pthread_mutex_lock(&lock);
        link->fd = fd;
        if (!link->qp)
            shutdown(fd, SHUT_RDWR); /* the consumer has ended the attempt */
        pthread_mutex_unlock(&lock);
    }
    /* The asking side sends, reads the answer and confirms; the other side answers and reads the confirmation. */
    if (write_all(link->fd, &link->hello, sizeof link->hello) || read_all(link->fd, answer, sizeof *answer) || answer->size > MAX_PRIVATE)
        return link->active ? DAT_TRANSPORT_NON_PEER_REJECTED : DAT_TRANSPORT_ACCEPT_ERROR;
    if (!answer->verdict)
        return DAT_TRANSPORT_PEER_REJECTED;
    if (link->active && write_all(link->fd, answer, sizeof *answer))
        return DAT_TRANSPORT_NON_PEER_REJECTED;
    return DAT_TRANSPORT_ESTABLISHED;
}

static void read_frames(struct link *link)
{
    struct frame frame;
    while (!read_all(link->fd, &frame, sizeof frame) && frame.size <= MAX_MESSAGE) {
        struct item *item = new_item(frame.kind, frame.size);
        if (!item || read_all(link->fd, item->data, frame.size)) {
            free(item);
            return;
        }
        item->frame = frame;
        pthread_mutex_lock(&lock);
        if (link->qp)
            received(link->qp, item);
        else
            free(item);
        pthread_mutex_unlock(&lock);
    }
}

static void *run(void *with)
{
    struct link *link = with;
    struct hello answer = { .size = 0 };
    uint32_t outcome = shake_hands(link, &answer);
    pthread_mutex_lock(&lock);
    struct qp *qp = link->qp;
    if (qp && outcome == DAT_TRANSPORT_ESTABLISHED) {
        link->refs++;
        if (start(NULL, writer, link)) {
            link->refs--;
            outcome = DAT_TRANSPORT_UNREACHABLE;
        }
    }
    if (qp && outcome == DAT_TRANSPORT_ESTABLISHED) {
        qp->state = CONNECTED;
        dat_transport_connection(link->ia, qp->token, outcome, answer.data, link->active ? answer.size : 0);
        pthread_mutex_unlock(&lock);
        read_frames(link);
        pthread_mutex_lock(&lock);
        if (link->qp)
            end(link->qp, DAT_TRANSPORT_DISCONNECTED);
    } else if (qp && outcome == DAT_TRANSPORT_PEER_REJECTED) {
        dat_transport_connection(link->ia, qp->token, outcome, answer.data, answer.size);
        end(qp, DAT_TRANSPORT_DISCONNECTED);
    } else if (qp) {
        end(qp, outcome);
    }
    leave(link);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Gives the queue pair a connection whose handshake a thread does. */
static DAT_RETURN begin(struct qp *qp, struct link *link, uint64_t token, dat_transport_ia ia, const void *data, uint32_t size)
{
    DAT_RETURN result = DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    pthread_mutex_lock(&lock);
    if (qp->state == IDLE && size <= MAX_PRIVATE) {
        link->qp = qp;
        link->ia = ia;
        link->refs = 2;
        link->hello.verdict = 1;
        link->hello.size = size;
        if (size)
            memcpy(link->hello.data, data, size);
        pthread_cond_init(&link->more, NULL);
        result = start(NULL, run, link);
    }
    if (result == DAT_SUCCESS) {
        qp->link = link;
        qp->token = token;
        qp->state = ATTEMPT;
    }
    pthread_mutex_unlock(&lock);
    if (result != DAT_SUCCESS) {
        if (link->fd >= 0)
            close(link->fd);
        free(link);
    }
    return result;
}

/* ---- the table ---- */

static DAT_RETURN sockets_open(const char *ia_name, const char *device, uint32_t port, const char *const *settings, dat_transport_ia ia, void **to)
{
    struct adapter *adapter = calloc(1, sizeof *adapter);
    (void)ia_name, (void)port, (void)settings;
    if (!adapter)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    if (inet_pton(AF_INET, *device ? device : "127.0.0.1", &adapter->address) != 1 || ntohl(adapter->address.s_addr) >> 24 != 127) {
        dat_transport_log("sockets: the device of ia_params is no address like 127.0.0.1");
        free(adapter);
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE);
    }
    adapter->ia = ia;
    *to = adapter;
    return DAT_SUCCESS;
}

static void sockets_attributes(void *with, struct dat_transport_attr *attr)
{
    struct adapter *adapter = with;
    strcpy(attr->adapter_name, "sockets");
    strcpy(attr->vendor_name, "c-transport");
    set_address(&attr->address, adapter->address, 0);
    attr->max_message_size = attr->max_rdma_size = MAX_MESSAGE;
    attr->max_private_data_size = MAX_PRIVATE;
    attr->zero_based = attr->atomics = attr->immediate = 1;
}

static DAT_RETURN sockets_create_qp(const struct dat_transport_pz *pz, const struct dat_transport_qp_caps *caps, dat_transport_cq *recv, dat_transport_cq *request, void *srq, uint32_t has_srq, uint64_t token, void **to)
{
    struct qp *qp = calloc(1, sizeof *qp);
    (void)caps, (void)srq, (void)has_srq, (void)token;
    if (!qp)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    qp->pz = pz;
    qp->recv_cq = recv;
    qp->request_cq = request;
    *to = qp;
    return DAT_SUCCESS;
}

static void sockets_disconnect(void *qp)
{
    pthread_mutex_lock(&lock);
    end(qp, DAT_TRANSPORT_DISCONNECTED);
    pthread_mutex_unlock(&lock);
}

static DAT_RETURN sockets_reset_qp(void *with)
{
    struct qp *qp = with;
    pthread_mutex_lock(&lock);
    end(qp, DAT_TRANSPORT_DISCONNECTED);
    qp->state = IDLE;
    qp->port = 0;
    while (qp->receives.first)
        drop_first(&qp->receives);
    pthread_mutex_unlock(&lock);
    return DAT_SUCCESS;
}

static void sockets_free_qp(void *qp)
{
    sockets_reset_qp(qp);
    free(qp);
}

static DAT_RETURN sockets_post_send(void *with, const struct dat_transport_request *request)
{
    struct qp *qp = with;
    if (request->op == DAT_TRANSPORT_SEND_INVALIDATE || request->op > DAT_TRANSPORT_FETCH_ADD)
        return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
    pthread_mutex_lock(&lock);
    struct work *work = add_work(&qp->requests, request->id, request->iov, request->iov_count);
    if (work) {
        work->flags = request->flags;
        work->length = request->length;
        work->frame = (struct frame){ .kind = request->op, .solicited = !!(request->flags & DAT_TRANSPORT_SOLICITED), .immediate = request->immediate,
                                      .key = request->key, .address = request->remote_address,
                                      .operands = { request->operands[0], request->operands[1] } };
        qp->state == ENDED ? flush(qp) : advance(qp);
    }
    pthread_mutex_unlock(&lock);
    return work ? DAT_SUCCESS : DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
}

static DAT_RETURN sockets_post_recv(void *with, uint64_t id, const DAT_LMR_TRIPLET *iov, uint32_t count)
{
    struct qp *qp = with;
    pthread_mutex_lock(&lock);
    struct work *work = add_work(&qp->receives, id, iov, count);
    if (work)
        qp->state == ENDED ? flush(qp) : serve(qp);
    pthread_mutex_unlock(&lock);
    return work ? DAT_SUCCESS : DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
}

/* A peer that has connected and has yet to say what it wants. */
struct guest {
    int fd;
    struct adapter adapter;
    uint64_t token, qual;
};

static void *greet(void *with)
{
    struct guest *guest = with;
    struct hello hello;
    struct request *request = malloc(sizeof *request);
    if (!request || read_all(guest->fd, &hello, sizeof hello) || hello.size > MAX_PRIVATE) {
        close(guest->fd);
        free(request);
    } else {
        struct dat_transport_arrival arrival = { .remote = hello.from, .private_data = hello.data, .private_data_size = hello.size };
        set_address(&arrival.local, guest->adapter.address, guest->qual);
        *request = (struct request){ guest->fd, guest->qual };
        dat_transport_connect_request(guest->adapter.ia, guest->token, request, &arrival);
    }
    free(guest);
    return NULL;
}

static void *listening(void *with)
{
    struct listener *listener = with;
    for (;;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && !__atomic_load_n(&listener->stopped, __ATOMIC_SEQ_CST)) {
            usleep(10000); /* no descriptor is free, perhaps; one may be soon */
            continue;
        }
        if (__atomic_load_n(&listener->stopped, __ATOMIC_SEQ_CST)) {
            close(fd);
            return NULL;
        }
        struct guest *guest = malloc(sizeof *guest);
        if (guest)
            *guest = (struct guest){ fd, *listener->adapter, listener->token, listener->qual };
        if (!guest || start(NULL, greet, guest)) {
            close(fd);
            free(guest);
        }
    }
}

static DAT_RETURN sockets_listen(void *with, uint64_t *qual, uint64_t token, void **to)
{
    struct listener *listener = calloc(1, sizeof *listener);
    uint64_t first = *qual ? *qual : 49152, last = *qual ? *qual : 65535;
    DAT_RETURN result = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    if (!listener || (listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0) {
        free(listener);
        return result;
    }
    listener->adapter = with;
    listener->token = token;
    result = *qual ? DAT_ERROR(DAT_CONN_QUAL_IN_USE, DAT_NO_SUBTYPE) : DAT_ERROR(DAT_CONN_QUAL_UNAVAILABLE, DAT_NO_SUBTYPE);
    for (uint64_t at = first; at <= last; at++) {
        listener->qual = at;
        listener->name_size = name(&listener->name, listener->adapter->address, at);
        if (!bind(listener->fd, (struct sockaddr *)&listener->name, listener->name_size)) {
            listen(listener->fd, 4096);
            result = start(&listener->thread, listening, listener);
            break;
        }
    }
    if (result != DAT_SUCCESS) {
        close(listener->fd);
        free(listener);
        return result;
    }
    *qual = listener->qual;
    *to = listener;
    return DAT_SUCCESS;
}

static void sockets_free_listener(void *with)
{
    struct listener *listener = with;
    int wake = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    __atomic_store_n(&listener->stopped, 1, __ATOMIC_SEQ_CST);
    connect(wake, (struct sockaddr *)&listener->name, listener->name_size);
    pthread_join(listener->thread, NULL);
    close(wake);
    close(listener->fd);
    free(listener);
}

static DAT_RETURN sockets_connect(void *with, void *qp, const struct dat_transport_connect *to)
{
    static uint16_t ports;
    struct adapter *adapter = with;
    struct link *link = calloc(1, sizeof *link);
    uint16_t port = __atomic_add_fetch(&ports, 1, __ATOMIC_RELAXED) | 1;
    if (!link)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    link->fd = -1;
    link->active = 1;
    link->peer_size = name(&link->peer, ((const struct sockaddr_in *)&to->remote)->sin_addr, to->conn_qual);
    set_address(&link->hello.from, adapter->address, port);
    ((struct qp *)qp)->port = port;
    return begin(qp, link, to->token, adapter->ia, to->private_data, to->private_data_size);
}

static DAT_RETURN sockets_accept(void *with, void *qp_with, uint64_t token, const void *data, uint32_t size)
{
    struct request *request = with;
    struct qp *qp = qp_with;
    struct link *link = calloc(1, sizeof *link);
    if (!link) {
        close(request->fd);
        free(request);
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    }
    link->fd = request->fd;
    qp->port = request->qual;
    free(request);
    return begin(qp, link, token, ((struct adapter *)qp->pz->adapter)->ia, data, size);
}

/* The end of the socket refuses the request; with a hello before it, the consumer has rejected it. */
static void sockets_free_request(void *with)
{
    struct request *request = with;
    close(request->fd);
    free(request);
}

static DAT_RETURN sockets_reject(void *with, const void *data, uint32_t size)
{
    struct hello no = { .verdict = 0, .size = size <= MAX_PRIVATE ? size : 0 };
    if (no.size)
        memcpy(no.data, data, no.size);
    write_all(((struct request *)with)->fd, &no, sizeof no);
    sockets_free_request(with);
    return DAT_SUCCESS;
}

static uint16_t sockets_local_port(void *qp)
{
    return ((struct qp *)qp)->port;
}

static const struct dat_transport sockets = {
    DAT_TRANSPORT_HEAD,
    .name = "sockets",
    .open = sockets_open,
    .free_adapter = free,
    .attributes = sockets_attributes,
    .create_qp = sockets_create_qp,
    .free_qp = sockets_free_qp,
    .reset_qp = sockets_reset_qp,
    .post_send = sockets_post_send,
    .post_recv = sockets_post_recv,
    .listen = sockets_listen,
    .free_listener = sockets_free_listener,
    .connect = sockets_connect,
    .accept = sockets_accept,
    .reject = sockets_reject,
    .free_request = sockets_free_request,
    .disconnect = sockets_disconnect,
    .local_port = sockets_local_port,
};
DAT_TRANSPORT_EXPORT(sockets)
