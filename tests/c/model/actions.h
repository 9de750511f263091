/* The actions of a run. Each chooses arguments at random, makes a call for the node, compares its code, and changes the model. An
 * action whose call would tell nothing does nothing. */
#ifndef ACTIONS_H
#define ACTIONS_H

#include "objects.h"

/* act_objects.c */
void create_pz(int node);
void free_pz(int node);
void create_evd(int node);
void free_evd(int node);
void resize_evd(int node);
void replace_cno(int node);
void switch_evd(int node);
void post_software_event(int node);
void dequeue(int node);
void wait_for_event(int node);
void create_cno(int node);
void free_cno(int node);
void wait_for_cno(int node);
void set_context(int node);

/* act_memory.c */
void create_ample_lmrs(int node); /* in each PZ, of both areas, with all privileges */
void create_lmr(int node);
void free_lmr(int node);
void create_rmr(int node);
void free_rmr(int node);
void bind_rmr(int node);

/* act_endpoints.c */
void create_ep(int node);
void modify_ep(int node);
void disconnect_ep(int node);
void reset_ep(int node);
void free_ep(int node);

/* act_connect.c */
void create_psp(int node);
void free_psp(int node);
void create_rsp(int node);
void free_rsp(int node);
void connect_ep(int node);
void answer_request(int node);

/* act_post.c */
void post_receive(int node);
void post_request(int node);

/* act_srq.c */
void create_srq(int node);
void change_srq(int node);
void post_srq(int node);

/* act_adapter.c */
void open_ia(int node);
void close_ia(int node);

/* main.c */
void prepare(int node);

#endif
