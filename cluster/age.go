package cluster

import "time"

// MetadataMaxAge is Config.MetadataMaxAge, or its default: a topic described
// longer ago than that is stale.
func (c *Cluster) MetadataMaxAge() time.Duration { return c.cfg.MetadataMaxAge }
