/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A DAT transport in C: a table of functions that move bytes and open connections. The library behind this header makes a provider of
 * it, which has every DAT object, event and state, in uDAPL 1.2 and 2.0.
 *
 *     static const struct dat_transport mine = { DAT_TRANSPORT_HEAD, .name = "mine", .open = mine_open, ... };
 *     DAT_TRANSPORT_EXPORT(mine)
 *
 *     cc -shared -fPIC -o libmine.so mine.c $(pkg-config --cflags --libs dat-transport)
 *
 * The shared object is listed in dat.conf and loaded like every provider, by libdat2.so.2 of any origin. docs/writing-a-provider.md
 * is the guide, dat-core/src/transport.rs says more about each function.
 *
 * Contexts. Functions that make an object return a context of yours by `void **`; it is passed to the others, and to the function
 * that frees it. NULL is a context like any other. An object is freed once, after its last use.
 *
 * Threads. Two threads never call post_send of one queue pair at a time, nor post_recv. All else may run in parallel. No function
 * blocks: connect, accept and disconnect return at once and end in a report. In the posts no call may be a cancellation point of
 * pthreads (write, send, ...): have a thread of yours make it. Reports (dat_transport_...) may be made by any thread,
 * from inside any function and under any lock: a thread of the library passes them on, in order.
 *
 * Return values are DAT_SUCCESS or DAT_ERROR(type, subtype). A number that is neither becomes DAT_INTERNAL_ERROR. A slot that is
 * NULL returns DAT_NOT_IMPLEMENTED, or has the default that is written beside it; without one of the slots that are marked as
 * required the provider does not register. C++ exceptions must not leave a function.
 */
#ifndef DAT_TRANSPORT_H
#define DAT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DAT_ERROR
#define DAT_ERROR(type, subtype) ((DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype)))
#endif

#define DAT_TRANSPORT_VERSION 1u
/* Version of the interface between provider and registry, which DAT_TRANSPORT_EXPORT exports. */
#define DAT_TRANSPORT_INTERFACE 0x44415401u

/* An IA in reports. Reports for one that is closed are ignored. */
typedef uint64_t dat_transport_ia;
/* A completion queue. It is valid until the last queue pair that was created with it is freed. */
typedef struct dat_transport_cq dat_transport_cq;

/* A protection zone. It is valid until the last object that was created in it is freed. */
struct dat_transport_pz {
    void *adapter;   /* of open */
    void *context;   /* of create_pz */
    uint32_t number; /* unique in the process */
    uint32_t reserved;
};

/* Limits and identity of a device. `attributes` gets those of a transport in software and changes what is different. */
struct dat_transport_attr {
    char adapter_name[64];
    char vendor_name[64];
    struct sockaddr_storage address; /* IPv4 or IPv6: what peers connect to; required */
    uint64_t max_message_size;
    uint64_t max_rdma_size;
    uint32_t max_eps;
    uint32_t max_dto_per_ep;
    uint32_t max_iov;
    uint32_t max_rdma_read_in;  /* of an endpoint */
    uint32_t max_rdma_read_out; /* of an endpoint */
    uint32_t max_private_data_size;
    uint32_t max_srqs;   /* not 0: create_srq and its companions work */
    uint32_t max_rmrs;   /* not 0: create_rmr and post_bind work */
    uint8_t zero_based;  /* 1: regions may have zero-based addresses */
    uint8_t atomics;     /* 1: DAT_TRANSPORT_COMPARE_SWAP and DAT_TRANSPORT_FETCH_ADD work */
    uint8_t immediate;   /* 1: the operations with immediate data work */
    uint8_t reserved[5];
};

struct dat_transport_qp_caps {
    uint32_t max_request, max_recv, max_request_iov, max_recv_iov, rdma_read_in, rdma_read_out;
};

/* Operations of a request. Refuse those that you do not know with DAT_NOT_IMPLEMENTED. */
enum {
    DAT_TRANSPORT_SEND,
    DAT_TRANSPORT_SEND_INVALIDATE, /* key: what to invalidate at the peer */
    DAT_TRANSPORT_SEND_IMMEDIATE,
    DAT_TRANSPORT_WRITE,
    DAT_TRANSPORT_WRITE_IMMEDIATE,
    DAT_TRANSPORT_READ,
    DAT_TRANSPORT_COMPARE_SWAP, /* operands: expected value, new value; 8 bytes come back */
    DAT_TRANSPORT_FETCH_ADD     /* operands[0]: summand; 8 bytes come back */
};
enum {
    DAT_TRANSPORT_SIGNALED = 1,  /* a success completes, too */
    DAT_TRANSPORT_SOLICITED = 2, /* the peer's completion is solicited */
    DAT_TRANSPORT_FENCE = 4      /* wait for earlier RDMA Reads */
};

/* A request of a send queue. It is valid during the call only. */
struct dat_transport_request {
    uint64_t id; /* for the completion */
    uint32_t op;
    uint32_t flags;
    const DAT_LMR_TRIPLET *iov;
    uint64_t length; /* sum of the segments; an RDMA Write or Read of 0 bytes touches no memory and succeeds with any key */
    uint64_t remote_address;
    uint64_t operands[2];
    uint32_t iov_count;
    uint32_t key; /* of the peer's memory */
    uint32_t immediate;
    uint32_t reserved;
};

/* A bind of a window; length 0 unbinds. */
struct dat_transport_bind {
    uint64_t id;
    void *rmr;
    void *lmr; /* of register, if bound */
    uint64_t address;
    uint64_t length;
    uint32_t rights; /* DAT_MEM_PRIV_FLAGS */
    uint32_t va_type;
    uint32_t flags;
    uint32_t bound; /* 0: unbind */
};

/* A completion. A failed request always completes, a successful one if it is signaled, in the order of the posts. */
struct dat_transport_completion {
    uint64_t id;
    uint64_t ep;     /* of a receive from an SRQ: the token of create_qp */
    uint32_t status; /* DAT_DTO_COMPLETION_STATUS */
    uint32_t receive; /* what arrived: 0 is a request's completion, else one of DAT_TRANSPORT_RECEIVE... */
    uint32_t length; /* bytes received; ignored for a request */
    uint32_t immediate;
    uint32_t invalidated; /* key that the message invalidated */
    uint32_t solicited;   /* of a receive: its sender requested a notification */
};
enum {
    DAT_TRANSPORT_REQUEST,
    DAT_TRANSPORT_RECEIVE,
    DAT_TRANSPORT_RECEIVE_INVALIDATE,
    DAT_TRANSPORT_RECEIVE_IMMEDIATE,
    DAT_TRANSPORT_RECEIVE_WRITE_IMMEDIATE
};

/* A connection that is asked for. It is valid during the call only. */
struct dat_transport_connect {
    uint64_t token; /* of the attempt, for reports */
    uint64_t conn_qual;
    struct sockaddr_storage remote; /* without a port */
    const void *private_data;
    uint32_t private_data_size;
    uint32_t reserved;
    uint64_t timeout; /* microseconds, UINT64_MAX: none; the library ends the attempt itself */
};

/* A connection request that arrived. */
struct dat_transport_arrival {
    struct sockaddr_storage remote; /* address and port of the peer */
    struct sockaddr_storage local;  /* address that it was sent to */
    const void *private_data;
    uint32_t private_data_size;
    uint32_t reserved;
};

/* Outcome of an attempt, or end of a connection. */
enum {
    DAT_TRANSPORT_ESTABLISHED,       /* with the peer's private data on the active side */
    DAT_TRANSPORT_PEER_REJECTED,     /* with the peer's private data */
    DAT_TRANSPORT_NON_PEER_REJECTED, /* no listener */
    DAT_TRANSPORT_UNREACHABLE,
    DAT_TRANSPORT_ACCEPT_ERROR,
    DAT_TRANSPORT_DISCONNECTED, /* also when this side's disconnect of a connection is done */
    DAT_TRANSPORT_BROKEN
};

/* Faults, with the token of the object. */
enum {
    DAT_TRANSPORT_FAULT_ADAPTER,
    DAT_TRANSPORT_FAULT_EP,
    DAT_TRANSPORT_FAULT_SRQ_LOW,
    DAT_TRANSPORT_FAULT_LAST_RECEIVE
};

struct dat_transport {
    uint32_t version;   /* DAT_TRANSPORT_VERSION */
    uint32_t size;      /* sizeof(struct dat_transport): slots behind it count as NULL */
    const char *name;   /* required: short, for messages */
    const char *const *settings; /* keys of ia_params that open knows, NULL at the end; NULL: none. Others are errors. */

    /* The adapter. `settings` holds key, value, key, value, NULL. Say why an open failed with dat_transport_log. */
    DAT_RETURN (*open)(const char *ia_name, const char *device, uint32_t port, const char *const *settings, dat_transport_ia ia, void **adapter); /* required */
    void (*close)(void *adapter);         /* ends threads and sends last messages; NULL: nothing to do */
    void (*free_adapter)(void *adapter);  /* NULL: nothing to free, and so for all free functions that are not required */
    void (*attributes)(void *adapter, struct dat_transport_attr *attr); /* required */

    DAT_RETURN (*create_pz)(void *adapter, void **pz); /* NULL: the number is enough */
    void (*free_pz)(void *pz);
    /* Without register the library keeps keys, ranges and rights, and dat_transport_read and its companions check them. */
    DAT_RETURN (*register_memory)(const struct dat_transport_pz *pz, void *address, uint64_t length, uint32_t rights, uint32_t va_type, uint32_t *lmr_context, uint32_t *rmr_context, void **lmr);
    /* `rights` are DAT_MEM_PRIV_FLAGS, and DAT_IB_MEM_PRIV_REMOTE_ATOMIC for the atomics. A local read needs no right. */
    void (*deregister)(void *lmr); /* required with register_memory: no peer touches the memory afterwards */

    /* Windows need register_memory: the library opens none over its own keys. A peer's Send may invalidate a bound window of its zone only. */
    DAT_RETURN (*create_rmr)(const struct dat_transport_pz *pz, uint32_t of_ep, void **rmr);
    void (*free_rmr)(void *rmr);
    DAT_RETURN (*post_bind)(void *qp, const struct dat_transport_bind *bind, uint32_t *rmr_context);

    DAT_RETURN (*create_srq)(const struct dat_transport_pz *pz, uint32_t max_recv, uint32_t max_iov, uint64_t token, void **srq);
    void (*free_srq)(void *srq);
    DAT_RETURN (*resize_srq)(void *srq, uint32_t max_recv);
    DAT_RETURN (*arm_srq_limit)(void *srq, uint32_t low); /* one DAT_TRANSPORT_FAULT_SRQ_LOW when fewer than `low` are left; 0 disarms */
    DAT_RETURN (*post_srq_recv)(void *srq, uint64_t id, const DAT_LMR_TRIPLET *iov, uint32_t iov_count);

    /* A queue pair that takes receives at once. `srq` is a context of create_srq if `has_srq`. */
    DAT_RETURN (*create_qp)(const struct dat_transport_pz *pz, const struct dat_transport_qp_caps *caps, dat_transport_cq *recv, dat_transport_cq *request, void *srq, uint32_t has_srq, uint64_t token, void **qp); /* required */
    void (*free_qp)(void *qp);        /* required: ends the connection, and every thread that reports for it */
    DAT_RETURN (*reset_qp)(void *qp); /* required: as new */
    DAT_RETURN (*post_send)(void *qp, const struct dat_transport_request *request); /* required */
    DAT_RETURN (*post_recv)(void *qp, uint64_t id, const DAT_LMR_TRIPLET *iov, uint32_t iov_count); /* required */

    /* Listens at *conn_qual, or chooses one if it is 0. DAT_CONN_QUAL_IN_USE if it is taken. */
    DAT_RETURN (*listen)(void *adapter, uint64_t *conn_qual, uint64_t token, void **listener); /* required */
    void (*free_listener)(void *listener); /* required: stops */
    DAT_RETURN (*connect)(void *adapter, void *qp, const struct dat_transport_connect *to); /* required */
    /* accept and reject take the request; free_request refuses one that got neither. */
    DAT_RETURN (*accept)(void *request, void *qp, uint64_t token, const void *private_data, uint32_t size); /* required */
    DAT_RETURN (*reject)(void *request, const void *private_data, uint32_t size); /* required */
    void (*free_request)(void *request); /* required */
    /* Ends the connection or the attempt, if there is one: flushes what is outstanding. */
    void (*disconnect)(void *qp); /* required */
    void (*message_received)(void *qp); /* NULL: ignored */
    uint16_t (*local_port)(void *qp);   /* NULL: 0, for a transport without ports */
};

#define DAT_TRANSPORT_HEAD .version = DAT_TRANSPORT_VERSION, .size = sizeof(struct dat_transport)

/* Reports. A pointer that is NULL or a number that has no meaning is logged, and the report is ignored. */
void dat_transport_complete(dat_transport_cq *cq, const struct dat_transport_completion *done);
/* The request is the library's from here on: accept, reject or free_request takes it. */
void dat_transport_connect_request(dat_transport_ia ia, uint64_t listener_token, void *request, const struct dat_transport_arrival *arrival);
void dat_transport_connection(dat_transport_ia ia, uint64_t token, uint32_t outcome, const void *private_data, uint32_t size);
void dat_transport_fault(dat_transport_ia ia, uint32_t fault, uint64_t token);
/* Writes a line if DAT_LOG is error or more. */
void dat_transport_log(const char *text);

/*
 * Memory, for a table without register_memory. Each returns DAT_DTO_SUCCESS, or the status of the completion: DAT_DTO_ERR_LOCAL_PROTECTION,
 * DAT_DTO_ERR_LOCAL_LENGTH (the segments are shorter than `size`), DAT_DTO_ERR_REMOTE_ACCESS. When dat_lmr_free has returned, none touches the memory.
 */
uint32_t dat_transport_gather(const struct dat_transport_pz *pz, const DAT_LMR_TRIPLET *iov, uint32_t count, void *to, uint64_t size);
uint32_t dat_transport_scatter(const struct dat_transport_pz *pz, const DAT_LMR_TRIPLET *iov, uint32_t count, const void *from, uint64_t size);
uint32_t dat_transport_read(const struct dat_transport_pz *pz, uint64_t address, uint32_t key, void *to, uint64_t size);
uint32_t dat_transport_write(const struct dat_transport_pz *pz, uint64_t address, uint32_t key, const void *from, uint64_t size);
/* DAT_TRANSPORT_COMPARE_SWAP or DAT_TRANSPORT_FETCH_ADD on 8 bytes; the old value goes to *old. */
uint32_t dat_transport_atomic(const struct dat_transport_pz *pz, uint64_t address, uint32_t key, uint32_t op, const uint64_t operands[2], uint64_t *old);

/* What DAT_TRANSPORT_EXPORT calls. */
uint32_t dat_transport_init(const struct dat_transport *table, const DAT_PROVIDER_INFO *info, const char *ia_params, void *add, uint32_t interface);
void dat_transport_fini(const DAT_PROVIDER_INFO *info);
bool dat_transport_owns(uintptr_t handle);
void dat_transport_forked(void);

/* Makes the shared object a provider. Once in one source file. */
#define DAT_TRANSPORT_EXPORT(table)                                                                                          \
    void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *ia_params)                                             \
    {                                                                                                                        \
        dat_transport_init(&(table), info, ia_params, NULL, DAT_TRANSPORT_INTERFACE);                                        \
    }                                                                                                                        \
    void dat_provider_fini(const DAT_PROVIDER_INFO *info) { dat_transport_fini(info); }                                      \
    const uint32_t dat_rs_interface = DAT_TRANSPORT_INTERFACE;                                                               \
    uint32_t dat_rs_provider_init(const DAT_PROVIDER_INFO *info, const char *ia_params, void *add, uint32_t interface)       \
    {                                                                                                                        \
        return dat_transport_init(&(table), info, ia_params, add, interface);                                                \
    }                                                                                                                        \
    void dat_rs_forked(void) { dat_transport_forked(); }                                                                     \
    bool dat_rs_owns(uintptr_t handle) { return dat_transport_owns(handle); }

#ifdef __cplusplus
}
#endif

#endif
