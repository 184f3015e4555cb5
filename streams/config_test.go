package streams

import (
	"bytes"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestM1GroupAndTopologyAreEnough(t *testing.T) {
	c := Config{Group: "g", Topology: oneTopic()}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	d := c.withDefaults()
	if d.RebalanceTimeout != 5*time.Minute || d.MissingSources != 5*time.Minute || d.SessionTimeout != 45*time.Second ||
		d.MaxRetries != 5 || d.MinBackoff != 50*time.Millisecond || d.MaxBackoff != time.Second {
		t.Errorf("defaults %+v", d)
	}
	c.MaxRetries, c.MissingSources, c.RebalanceTimeout = -1, -1, time.Minute
	if d = c.withDefaults(); d.MaxRetries != 0 || d.MissingSources != -1 || d.RebalanceTimeout != time.Minute {
		t.Errorf("M13: %+v", d)
	}
}

func TestM3EveryErrorComesWithItsField(t *testing.T) {
	long := 25 * 24 * time.Hour
	bad := Config{
		Group: " ", InstanceID: " ", MemberID: "\t", ProcessID: " ", RackID: " ", Endpoint: &Endpoint{}, Tags: map[string]string{"": "x"},
		RebalanceTimeout: long, PollInterval: -1, SessionTimeout: -1, MinBackoff: -1, MaxBackoff: -1, OnLeave: 9,
		Offsets: map[TaskID]int64{{Subtopology: "", Partition: -1}: 1},
	}
	err := bad.Validate()
	found := map[string]string{}
	var walk func(error)
	walk = func(err error) {
		if j, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range j.Unwrap() {
				walk(e)
			}
			return
		}
		var ce *ConfigError
		if errors.As(err, &ce) {
			found[ce.Field] = ce.Reason
		}
	}
	walk(err)
	for _, c := range []struct{ id, field, text string }{
		{"M4", "Group", "empty"}, {"M5", "Topology.Subtopologies", "at least one"}, {"M6", "RebalanceTimeout", "positive"},
		{"M7", "InstanceID", "empty"}, {"M7", "MemberID", "empty"}, {"M7", "ProcessID", "empty"}, {"M7", "RackID", "empty"},
		{"M7", "Endpoint.Host", "empty"}, {"M7", "Endpoint.Port", "0"}, {"M7", "Tags", "empty"}, {"M7", "MinBackoff", "negative"},
		{"M7", "MaxBackoff", "negative"}, {"M3", "PollInterval", "negative"}, {"M3", "SessionTimeout", "negative"}, {"M3", "OnLeave", "unknown"},
		{"M3", "Offsets", "makes no sense"},
	} {
		if !strings.Contains(found[c.field], c.text) {
			t.Errorf("%s %s: %q", c.id, c.field, found[c.field])
		}
	}
	for _, d := range []time.Duration{-1, -time.Hour, (math.MaxInt32 + 1) * time.Millisecond} {
		var ce *ConfigError
		if err := (Config{Group: "g", Topology: oneTopic(), RebalanceTimeout: d}).Validate(); !errors.As(err, &ce) || ce.Field != "RebalanceTimeout" {
			t.Errorf("M6 %v: %v", d, err)
		}
	}
}

func TestM7SettingsThatBrokersOrTheMemberCannotUse(t *testing.T) {
	long := strings.Repeat("x", 32768)
	for name, c := range map[string]struct {
		field string
		spoil func(*Config)
	}{
		"a long group":                {"Group", func(c *Config) { c.Group = long }},
		"a long member id":            {"MemberID", func(c *Config) { c.MemberID = long }},
		"a long tag":                  {"Tags", func(c *Config) { c.Tags = map[string]string{"zone": long} }},
		"a long host":                 {"Endpoint.Host", func(c *Config) { c.Endpoint = &Endpoint{Host: long, Port: 1} }},
		"less than a millisecond":     {"RebalanceTimeout", func(c *Config) { c.RebalanceTimeout = time.Microsecond }},
		"backoffs the wrong way":      {"MaxBackoff", func(c *Config) { c.MinBackoff, c.MaxBackoff = 2, 1 }},
		"temporarily without a name":  {"OnLeave", func(c *Config) { c.OnLeave = LeaveTemporarily }},
		"a subtopology that is blank": {"Topology.Subtopologies[0].ID", func(c *Config) { c.Topology = Topology{Subtopologies: []Subtopology{{Sources: []string{"in"}}}} }},
	} {
		cfg := Config{Group: "g", Topology: oneTopic()}
		c.spoil(&cfg)
		var ce *ConfigError
		if err := cfg.Validate(); !errors.As(err, &ce) || ce.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	widest := strings.Repeat("x", 32767)
	good := Config{
		Group: widest, Topology: oneTopic(), MemberID: widest, Tags: map[string]string{"zone": widest},
		RebalanceTimeout: math.MaxInt32 * time.Millisecond, MinBackoff: time.Second, MaxBackoff: time.Second,
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestM3NothingIsSentForABadConfig(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		before := len(w.sim.Frames())
		if _, err := w.tryJoin(t.Context(), func(c *Config) { c.Group = "" }); err == nil || !strings.Contains(err.Error(), "Group is empty") {
			t.Fatalf("%v", err)
		}
		if n := len(w.sim.Frames()); n != before {
			t.Errorf("%d requests were sent", n-before)
		}
	})
}

func TestM10_M15IdsAreUUIDs(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	a, b := Config{Group: "g"}.withDefaults(), Config{Group: "g"}.withDefaults()
	if a.ProcessID != b.ProcessID || !form.MatchString(a.ProcessID) {
		t.Errorf("M10: processes %q and %q", a.ProcessID, b.ProcessID)
	}
	if a.MemberID == b.MemberID || !form.MatchString(a.MemberID) || len(a.MemberID) != 36 {
		t.Errorf("M15: members %q and %q", a.MemberID, b.MemberID)
	}
	fixed := Config{Group: "g", Rand: bytes.NewReader(make([]byte, 16))}.withDefaults()
	if fixed.MemberID != "00000000-0000-4000-8000-000000000000" {
		t.Errorf("the random source is not used: %q", fixed.MemberID)
	}
}

func TestM14TheConfigCanBeReadBackAndIsACopy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		top := oneTopic()
		tags := map[string]string{"zone": "a"}
		end := &Endpoint{Host: "h", Port: 1}
		offsets := map[TaskID]int64{{Subtopology: "0"}: 1}
		m := w.join(func(c *Config) { c.Topology, c.Tags, c.Endpoint, c.Offsets = top, tags, end, offsets })
		top.Subtopologies[0].Sources[0], tags["zone"] = "other", "b"
		end.Port, offsets[TaskID{Subtopology: "0"}] = 2, 2
		c := m.Config()
		if c.Group != "g" || c.Topology.Subtopologies[0].Sources[0] != "in" || c.Tags["zone"] != "a" || c.Endpoint.Port != 1 || c.Offsets[TaskID{Subtopology: "0"}] != 1 {
			t.Errorf("%+v", c)
		}
		if r := w.requests()[0]; r.RebalanceTimeoutMillis != 300_000 {
			t.Errorf("M6: the rebalance time-out sent is %d", r.RebalanceTimeoutMillis)
		}
	})
}
