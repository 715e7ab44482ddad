/* cluster_conf.h - what several programs read from the [cluster] section of cluster.conf. */
#ifndef REFRAIN_PROTO_CLUSTER_CONF_H
#define REFRAIN_PROTO_CLUSTER_CONF_H

/* Keys that may stand in [cluster]; a program applies those that its own table has. */
#define CLUSTER_CONF_KEYS                                                                          \
    {                                                                                              \
        "model", "served-model-name", "groups", "tensor-parallel-size", "host", "port", "run-dir", \
            "threads", "kv-cache-memory", "max-model-len", "log-level", NULL                       \
    }
/* Sections of the programs; a program refuses any other. "worker.N" holds group N's own values. */
#define CLUSTER_CONF_SECTIONS                     \
    {                                             \
        "cluster", "router", "worker", "up", NULL \
    }

#endif
