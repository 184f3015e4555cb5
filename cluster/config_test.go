package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/kafka"
)

func TestConfigErrorsNameTheField(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"Bootstrap":        func(c *Config) { c.Bootstrap = nil },
		"Bootstrap[1]":     func(c *Config) { c.Bootstrap = []string{"a:1", "b:no"} },
		"Bootstrap[0]":     func(c *Config) { c.Bootstrap = []string{"a:1,b:2"} },
		"ClientID":         func(c *Config) { c.ClientID = strings.Repeat("c", 32_768) },
		"DialTimeout":      func(c *Config) { c.DialTimeout = -1 },
		"RequestTimeout":   func(c *Config) { c.RequestTimeout = -1 },
		"RetryTimeout":     func(c *Config) { c.RetryTimeout = -1 },
		"IdleTimeout":      func(c *Config) { c.IdleTimeout = -1 },
		"RetryBackoff":     func(c *Config) { c.RetryBackoff = -1 },
		"RetryBackoffMax":  func(c *Config) { c.RetryBackoff = time.Minute },
		"ReconnectBackoff": func(c *Config) { c.ReconnectBackoff = -1 },
		"MetadataMaxAge":   func(c *Config) { c.MetadataMaxAge = -1 },
		"RebootstrapAfter": func(c *Config) { c.RebootstrapAfter = -1 },
		"TopicPatience":    func(c *Config) { c.TopicPatience = -1 },
		"MaxResponseBytes": func(c *Config) { c.MaxResponseBytes = -1 },
		"JournalSize":      func(c *Config) { c.JournalSize = -1 },
		"SASL[0]":          func(c *Config) { c.SASL = []sasl.Mechanism{nil} },

		"BootstrapControllers is set beside Bootstrap": func(c *Config) { c.BootstrapControllers = []string{"a:1"} },
		"BootstrapControllers[1]":                      func(c *Config) { c.Bootstrap, c.BootstrapControllers = nil, []string{"a:1", "b:no"} },
	} {
		cfg := Config{Bootstrap: []string{"a:1"}}
		change(&cfg)
		_, err := Connect(context.Background(), cfg)
		if err == nil || !strings.Contains(err.Error(), "cluster.Config."+field) || kafka.MayHaveHappened(err) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestBootstrapAddressesAreCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"Host:9093": "host:9093", "host": "host:9092", "[::1]:9092": "[::1]:9092", "::1": "[::1]:9092",
		"[2001:DB8::1]:1": "[2001:db8::1]:1", "fe80::1%eth0": "[fe80::1%eth0]:9092",
	} {
		if got, err := canonical(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", ":9092", "a:0", "a:65536", "a:b", "a b:1", "a:1:2", "http://a:1"} {
		if got, err := canonical(in); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}

func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	cfg, err := Config{Bootstrap: []string{"a"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	got := []time.Duration{cfg.DialTimeout, cfg.RequestTimeout, cfg.RetryTimeout, cfg.IdleTimeout, cfg.RetryBackoff, cfg.RetryBackoffMax,
		cfg.ReconnectBackoff, cfg.MetadataMaxAge, cfg.RebootstrapAfter, cfg.TopicPatience}
	want := []time.Duration{10 * time.Second, 30 * time.Second, 60 * time.Second, 3 * time.Minute, 5 * time.Millisecond, time.Second,
		50 * time.Millisecond, 5 * time.Minute, 5 * time.Minute, 5 * time.Second}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("default %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// openMechanism hides nothing: every verb and encoder would print its password.
type openMechanism struct{ Password string }

func (openMechanism) Name() string { return "OPEN" }

func (openMechanism) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	return nil, nil, errors.ErrUnsupported
}

func TestK17AConfigShowsNoSecret(t *testing.T) {
	const secret = "hunter2-secret"
	cfg := Config{
		Bootstrap: []string{"a:1"}, SASL: []sasl.Mechanism{plain.Auth{User: "u", Pass: secret}.AsMechanism(), openMechanism{secret}},
		TLS: &tls.Config{ServerName: secret}, Rand: rand.NewPCG(1, 1),
	}
	var buf bytes.Buffer
	slog.New(slog.NewTextHandler(&buf, nil)).Info("x", "cfg", cfg)
	slog.New(slog.NewJSONHandler(&buf, nil)).Info("x", "cfg", &cfg)
	c, err := Connect(context.Background(), Config{Bootstrap: cfg.Bootstrap, SASL: cfg.SASL, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, s := range []string{fmt.Sprintf("%v", cfg), fmt.Sprintf("%+v", &cfg), fmt.Sprintf("%#v", cfg), fmt.Sprint(cfg), buf.String(), fmt.Sprintf("%v %+v", c, c)} {
		if strings.Contains(s, secret) {
			t.Errorf("a secret is shown: %s", s)
		}
	}
	if !strings.Contains(buf.String(), `"cfg":"cluster.Config{`) {
		t.Errorf("logged as JSON: %s", buf.String())
	}
	if s := cfg.String(); !strings.Contains(s, "PLAIN") || !strings.Contains(s, "TLS: true") {
		t.Errorf("the form says too little: %s", s)
	}
}

func TestK18MachinesGetRandomnessOfTheirOwnFromTheSeed(t *testing.T) {
	draw := func() (out [4]uint64) {
		c, err := Connect(context.Background(), Config{Bootstrap: []string{"a:1"}, Lazy: true, Rand: rand.NewPCG(1, 2)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range out {
			out[i] = c.NewRand().Uint64()
		}
		return out
	}
	a, b := draw(), draw()
	if a != b {
		t.Error("the same seed draws otherwise")
	}
	if a[0] == a[1] || a[1] == a[2] {
		t.Error("two machines draw the same")
	}
}

func TestTheTraceTellsAndCannotHoldUpTheClient(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		dials := make(chan string, 10)
		refreshes := make(chan []string, 10)
		hold := make(chan struct{})
		tr := &Trace{
			Dialled: func(addr, purpose string, _ time.Duration, err error) {
				dials <- fmt.Sprint(addr, " ", purpose, " ", err)
			},
			Refreshed: func(topics []string, _ string, _ time.Duration, err error) { refreshes <- topics; <-hold },
		}
		r.topic("t", 1)
		c := r.connect(func(cfg *Config) { cfg.Trace = tr })
		mustDo(t, second(c.Topic(r.within(time.Minute), "t"))) // the trace is stuck
		if got := <-dials; got != "b1:9092 general <nil>" {
			t.Errorf("dial %q", got)
		}
		if got := <-refreshes; len(got) != 0 {
			t.Errorf("first refresh %v", got)
		}
		for range 2 * traceBacklog {
			c.tracer.retried("x", 1, 0, nil)
			c.tracer.refreshed(nil, "", 0, nil)
		}
		if c.Stats().TraceDropped == 0 {
			t.Error("left out calls are not counted")
		}
		start := time.Now()
		c.Close()
		if time.Since(start) > 0 {
			t.Error("Close waited for the user's function")
		}
		close(hold)
		synctest.Wait()
		if n := len(refreshes); n > 0 {
			t.Errorf("%d calls began after Close", n)
		}
	})
}
