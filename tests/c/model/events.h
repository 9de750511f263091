/* The events of EVDs, compared with the model. */
#ifndef EVENTS_H
#define EVENTS_H

#include "objects.h"

/* Dequeues an event of the EVD and compares it; returns whether there was one. */
bool take_event(struct object *evd);

/* Compares the event in `shared->event`, which came from the EVD. */
void check_event(struct object *evd);

/* Takes all events of all EVDs. */
void take_all_events(void);

/* Compares the completion in `shared->event`: of a DTO, or of a bind. */
void check_completion(struct object *evd);

#endif
