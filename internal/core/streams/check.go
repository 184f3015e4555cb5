package streams

import (
	"fmt"
	"maps"
	"slices"
)

// checker collects what is wrong with a configuration.
type checker struct{ errs []error }

func (c *checker) refuse(field, format string, args ...any) {
	c.errs = append(c.errs, &ConfigError{field, fmt.Sprintf(format, args...)})
}

// text refuses a string that is empty or that brokers cannot read.
func (c *checker) text(field, s string) {
	switch {
	case blank(s):
		c.refuse(field, "is empty")
	case len(s) > maxString:
		c.refuse(field, "has %d bytes, brokers read %d", len(s), maxString)
	}
}

func (c *checker) optional(field, s string) {
	if s != "" {
		c.text(field, s)
	}
}

func (c *checker) topology(t Topology) {
	if len(t.Subtopologies) == 0 {
		c.refuse("Topology.Subtopologies", "is empty: at least one is needed")
	}
	if t.Epoch < 0 {
		c.refuse("Topology.Epoch", "is negative: %d", t.Epoch)
	}
	seen := map[string]bool{}
	for i, s := range t.Subtopologies {
		field := fmt.Sprintf("Topology.Subtopologies[%d]", i)
		c.text(field+".ID", s.ID)
		if seen[s.ID] {
			c.refuse(field+".ID", "%q stands twice", s.ID)
		}
		seen[s.ID] = true
		c.subtopology(field, s)
	}
}

func (c *checker) subtopology(field string, s Subtopology) {
	if len(s.Sources)+len(s.Repartitions) == 0 {
		c.refuse(field, "has no source: neither Sources nor Repartitions")
	}
	c.names(field+".Sources", s.Sources)
	c.names(field+".RepartitionSinks", s.RepartitionSinks)
	c.internal(field+".Repartitions", s.Repartitions)
	c.internal(field+".Changelogs", s.Changelogs)
	for i, t := range s.Changelogs {
		if t.Partitions > 0 {
			c.refuse(fmt.Sprintf("%s.Changelogs[%d].Partitions", field, i), "is set: the number of tasks decides")
		}
	}
	read := s.reads()
	for i, g := range s.CopartitionGroups {
		at := fmt.Sprintf("%s.CopartitionGroups[%d]", field, i)
		c.names(at, g)
		for _, name := range g {
			if !slices.Contains(read, name) {
				c.refuse(at, "names %q, which the subtopology does not read", name)
			}
		}
	}
}

func (c *checker) names(field string, names []string) {
	seen := map[string]bool{}
	for i, n := range names {
		c.text(fmt.Sprintf("%s[%d]", field, i), n)
		if seen[n] {
			c.refuse(field, "has %q twice", n)
		}
		seen[n] = true
	}
}

func (c *checker) internal(field string, ts []InternalTopic) {
	names := make([]string, len(ts))
	for i, t := range ts {
		at := fmt.Sprintf("%s[%d]", field, i)
		names[i] = t.Name
		if t.Partitions < 0 {
			c.refuse(at+".Partitions", "is negative: %d", t.Partitions)
		}
		if t.Replicas < -1 {
			c.refuse(at+".Replicas", "is %d", t.Replicas)
		}
		for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
			c.text(at+".Configs", k)
			if len(t.Configs[k]) > maxString {
				c.refuse(at+".Configs", "%s has %d bytes, brokers read %d", k, len(t.Configs[k]), maxString)
			}
		}
	}
	c.names(field, names)
}
