package cli

import (
	"os"
	"strings"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// secret is a text that no format verb prints: fmt does not follow a pointer
// inside of a struct. Its zero value is empty.
type secret struct{ text *string }

func newSecret(text string) secret {
	if text == "" {
		return secret{}
	}
	return secret{&text}
}

// reveal returns the text.
func (s secret) reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// settings is what flags, properties, the file of --config and the environment
// say together, in this order of precedence. A zero value is the library's
// default.
type settings struct {
	bootstrap   []string
	controllers []string // in place of bootstrap
	clientID    string
	security    security

	requestTimeout time.Duration
	dialTimeout    time.Duration
	idleTimeout    time.Duration
	metadataMaxAge time.Duration
	retry          backoffBounds

	reconnectBackoff time.Duration

	producer producerSettings
	consumer consumerSettings
}

// backoffBounds are a first and a longest wait.
type backoffBounds struct{ first, longest time.Duration }

// producerSettings are the properties that only a producer reads.
type producerSettings struct {
	linger          time.Duration
	lingerSet       bool
	batchSize       int
	maxRequestSize  int
	bufferMemory    int64
	deliveryTimeout time.Duration

	acks               string // one of durabilities; "" is all
	idempotence        string // true, false; "" is what acks allows
	transactionTimeout time.Duration
	inFlight           int
	codec              compress.Codec
	codecSet           bool
}

// consumerSettings are the properties that only a consumer reads.
type consumerSettings struct {
	uncommitted       bool
	isolationSet      bool
	maxWait           time.Duration
	minBytes          int32
	maxBytes          int32
	maxPartitionBytes int32
	reset             string // earliest, latest, none; "" is the default
}

// settings resolves the flags of this run.
func (a *app) settings() (*settings, error) {
	s := &settings{}
	if err := applyConfigFile(a, s); err != nil {
		return nil, err
	}
	for _, p := range a.shared.properties {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return nil, usagef("-X %s: expected NAME=VALUE", p)
		}
		if err := s.apply(strings.TrimSpace(name), value, "-X"); err != nil {
			return nil, err
		}
	}
	if err := applyBootstrap(a, s); err != nil {
		return nil, err
	}
	if err := s.security.applyFlags(&a.shared); err != nil {
		return nil, err
	}
	if s.requestTimeout == 0 {
		s.requestTimeout = a.shared.timeout
	}
	return s, nil
}

// applyBootstrap takes the addresses of the flag, of the properties, of the
// environment, or the default. Controllers come from properties alone.
func applyBootstrap(a *app, s *settings) error {
	env := os.Getenv("OTTLA_BOOTSTRAP")
	switch {
	case len(s.controllers) > 0 && (a.shared.bootstrap != "" || len(s.bootstrap) > 0):
		return usagef("bootstrap.controllers excludes --bootstrap and bootstrap.servers: a client is connected to controllers or to brokers")
	case len(s.controllers) > 0:
		return nil
	case a.shared.bootstrap != "":
		return s.setBootstrap(a.shared.bootstrap, "--bootstrap")
	case len(s.bootstrap) > 0:
		return nil
	case env != "":
		return s.setBootstrap(env, "OTTLA_BOOTSTRAP")
	default:
		s.bootstrap = []string{defaultBootstrap}
		return nil
	}
}

// setBootstrap reads the addresses of brokers.
func (s *settings) setBootstrap(list, from string) (err error) {
	s.bootstrap, err = addresses(list, from)
	return err
}

// addresses reads host:port,…; from says whose value it is. A missing port is
// Kafka's 9092.
func addresses(list, from string) ([]string, error) {
	var addrs []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		host, port, err := splitAddress(item)
		if err != nil {
			return nil, usagef("%s: %v", from, err)
		}
		addrs = append(addrs, kafka.JoinAddr(host, port))
	}
	if len(addrs) == 0 {
		return nil, usagef("%s names no broker: expected HOST:PORT,…", from)
	}
	return addrs, nil
}

// applyConfigFile reads the file of --config.
func applyConfigFile(a *app, s *settings) error {
	file := a.shared.config
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return usagef("--config: %v", err)
	}
	props, err := parseJavaProperties(data)
	if err != nil {
		return usagef("--config %s: %v", file, err)
	}
	for _, p := range props {
		where := file + ":" + itoa(p.line)
		if _, known := propertyByName(p.name); !known {
			names := near(p.name, propertyNames())
			if len(names) > 0 && distance(p.name, names[0]) <= 2 {
				return usagef("%s: unknown property %s%s", where, p.name, didYouMean(names))
			}
			a.notes.printf("ottla: %s: %s is no Kafka client property that ottla knows: left out", where, p.name)
			continue
		}
		if err := s.apply(p.name, p.value, where); err != nil {
			return err
		}
	}
	return nil
}
