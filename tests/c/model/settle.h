/* Waits until everything has come that must come, and the comparison of all queries. */
#ifndef SETTLE_H
#define SETTLE_H

/* Takes events until no endpoint owes one. Fails after a minute. */
void settle(void);

/* Compares what each query returns with the model. */
void audit(void);

#endif
