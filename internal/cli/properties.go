package cli

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ottla/ottla/record/compress"
)

// itoa is short for strconv.Itoa.
func itoa(n int) string { return strconv.Itoa(n) }

// clientProperty is one of Kafka's client properties.
type clientProperty struct {
	name string
	set  func(s *settings, value string) error
	// ignored says why a property of Java's client has no effect; set is nil.
	ignored string
}

// clientProperties are the properties that -X and --config take.
func clientProperties() []clientProperty {
	return slices.Concat(connectionProperties(), securityProperties(), producerProperties(), consumerProperties(), ignoredProperties())
}

func connectionProperties() []clientProperty {
	return []clientProperty{
		{name: "bootstrap.servers", set: func(s *settings, v string) error { return s.setBootstrap(v, "bootstrap.servers") }},
		{name: "bootstrap.controllers", set: func(s *settings, v string) (err error) {
			s.controllers, err = addresses(v, "bootstrap.controllers")
			return err
		}},
		{name: "client.id", set: func(s *settings, v string) error { s.clientID = v; return nil }},
		{name: "request.timeout.ms", set: millis(func(s *settings) *time.Duration { return &s.requestTimeout })},
		{name: "socket.connection.setup.timeout.ms", set: millis(func(s *settings) *time.Duration { return &s.dialTimeout })},
		{name: "connections.max.idle.ms", set: millis(func(s *settings) *time.Duration { return &s.idleTimeout })},
		{name: "metadata.max.age.ms", set: millis(func(s *settings) *time.Duration { return &s.metadataMaxAge })},
		{name: "retry.backoff.ms", set: millis(func(s *settings) *time.Duration { return &s.retry.first })},
		{name: "retry.backoff.max.ms", set: millis(func(s *settings) *time.Duration { return &s.retry.longest })},
		{name: "reconnect.backoff.ms", set: millis(func(s *settings) *time.Duration { return &s.reconnectBackoff })},
	}
}

func producerProperties() []clientProperty {
	return []clientProperty{
		{name: "linger.ms", set: func(s *settings, v string) error {
			s.producer.lingerSet = true
			return millisFrom(0, func(s *settings) *time.Duration { return &s.producer.linger })(s, v)
		}},
		{name: "batch.size", set: number(1, 1<<30, func(s *settings) *int { return &s.producer.batchSize })},
		{name: "max.request.size", set: number(1, 1<<30, func(s *settings) *int { return &s.producer.maxRequestSize })},
		{name: "buffer.memory", set: number(1, 1<<40, func(s *settings) *int64 { return &s.producer.bufferMemory })},
		{name: "delivery.timeout.ms", set: millis(func(s *settings) *time.Duration { return &s.producer.deliveryTimeout })},
		{name: "transaction.timeout.ms", set: millis(func(s *settings) *time.Duration { return &s.producer.transactionTimeout })},
		{name: "max.in.flight.requests.per.connection", set: number(1, 5, func(s *settings) *int { return &s.producer.inFlight })},
		{name: "compression.type", set: func(s *settings, v string) error { return s.producer.setCodec(v) }},
		{name: "acks", set: func(s *settings, v string) error { return s.producer.setAcks(v) }},
		{name: "enable.idempotence", set: func(s *settings, v string) error { return s.producer.setIdempotence(v) }},
	}
}

func consumerProperties() []clientProperty {
	return []clientProperty{
		{name: "isolation.level", set: func(s *settings, v string) error {
			switch v {
			case "read_committed":
				s.consumer.uncommitted = false
			case "read_uncommitted":
				s.consumer.uncommitted = true
			default:
				return fmt.Errorf("%q: expected read_committed or read_uncommitted", v)
			}
			s.consumer.isolationSet = true
			return nil
		}},
		{name: "fetch.max.wait.ms", set: millis(func(s *settings) *time.Duration { return &s.consumer.maxWait })},
		{name: "fetch.min.bytes", set: number(1, math.MaxInt32, func(s *settings) *int32 { return &s.consumer.minBytes })},
		{name: "fetch.max.bytes", set: number(1, math.MaxInt32, func(s *settings) *int32 { return &s.consumer.maxBytes })},
		{name: "max.partition.fetch.bytes", set: number(1, math.MaxInt32, func(s *settings) *int32 { return &s.consumer.maxPartitionBytes })},
		{name: "auto.offset.reset", set: func(s *settings, v string) error {
			if v != "earliest" && v != "latest" && v != "none" {
				return fmt.Errorf("%q: expected earliest, latest or none", v)
			}
			s.consumer.reset = v
			return nil
		}},
	}
}

// ignoredProperties are properties of Java's clients that need no effect here,
// so that a file of a Java client can be read as it is.
func ignoredProperties() []clientProperty {
	reasons := map[string][]string{
		"records are bytes": {
			"key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "interceptor.classes",
		},
		"it concerns Java's own machinery": {
			"metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
			"auto.include.jmx.reporter", "enable.metrics.push", "receive.buffer.bytes", "send.buffer.bytes",
			"socket.connection.setup.timeout.max.ms", "security.providers", "ssl.provider", "ssl.secure.random.implementation",
			"ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.engine.factory.class", "check.crcs",
			"max.poll.records", "max.poll.interval.ms", "default.api.timeout.ms", "client.dns.lookup", "max.block.ms",
			"metadata.max.idle.ms", "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms",
			"allow.auto.create.topics", "exclude.internal.topics", "retries", "partitioner.class", "partitioner.ignore.keys",
			"partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
			"sasl.login.class", "sasl.kerberos.service.name", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
			"compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
		},
		"the wait between connects to one address ends at 1 s": {"reconnect.backoff.max.ms"},
		"`ottla consume -g GROUP` has flags for a group": {
			"group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "enable.auto.commit",
			"auto.commit.interval.ms", "session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy",
		},
		"`ottla produce --tx ID` names it":   {"transactional.id"},
		"ottla ends its transactions itself": {"transaction.two.phase.commit.enable"},
	}
	var props []clientProperty
	for reason, names := range reasons {
		for _, name := range names {
			props = append(props, clientProperty{name: name, ignored: reason})
		}
	}
	return props
}

// propertyByName finds a property.
func propertyByName(name string) (clientProperty, bool) {
	for _, p := range clientProperties() {
		if p.name == name {
			return p, true
		}
	}
	return clientProperty{}, false
}

// propertyNames lists the properties that have an effect.
func propertyNames() []string {
	var names []string
	for _, p := range clientProperties() {
		if p.set != nil {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return names
}

// apply sets one property; from is -X or FILE:LINE.
func (s *settings) apply(name, value, from string) error {
	p, known := propertyByName(name)
	if !known {
		return usagef("%s: unknown property %s%s", from, name, didYouMean(near(name, propertyNames())))
	}
	if p.set == nil {
		if from == "-X" {
			return usagef("-X %s has no effect: %s", name, p.ignored)
		}
		return nil
	}
	if err := p.set(s, strings.TrimSpace(value)); err != nil {
		return usagef("%s: %s: %v", from, name, err)
	}
	return nil
}

// millis sets a duration above zero from milliseconds.
func millis(field func(*settings) *time.Duration) func(*settings, string) error {
	return millisFrom(1, field)
}

// millisFrom sets a duration of at least least milliseconds.
func millisFrom(least int64, field func(*settings) *time.Duration) func(*settings, string) error {
	return func(s *settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > math.MaxInt64/int64(time.Millisecond) {
			return fmt.Errorf("%q: expected milliseconds, at least %d", v, least)
		}
		*field(s) = time.Duration(n) * time.Millisecond
		return nil
	}
}

// number sets an integer within bounds.
func number[T int | int32 | int64](least, most int64, field func(*settings) *T) func(*settings, string) error {
	return func(s *settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q: expected a number from %d to %d", v, least, most)
		}
		*field(s) = T(n)
		return nil
	}
}

// only accepts one value, under either of its two names.
func only(value, alias, why string) func(*settings, string) error {
	return func(_ *settings, v string) error {
		if v == value || v == alias {
			return nil
		}
		return fmt.Errorf("%q: only %s: %s", v, value, why)
	}
}

// setCodec takes the name of a codec.
func (p *producerSettings) setCodec(name string) error {
	codec, err := compress.ParseCodec(name)
	if err != nil {
		return fmt.Errorf("%q: expected none, gzip, snappy, lz4 or zstd", name)
	}
	p.codec, p.codecSet = codec, true
	return nil
}

// splitAddress cuts HOST, HOST:PORT, [IPv6] and [IPv6]:PORT.
func splitAddress(item string) (host string, port int32, err error) {
	// Java's clients accept PROTOCOL://HOST:PORT.
	if at := strings.Index(item, "://"); at >= 0 {
		if strings.EqualFold(item[:at], "http") || strings.EqualFold(item[:at], "https") {
			return "", 0, fmt.Errorf("%s is a web address: expected HOST:PORT of a Kafka listener", item)
		}
		item = item[at+3:]
	}
	host, text, err := net.SplitHostPort(item)
	if err != nil {
		host, text = item, "9092"
		if inner, ok := strings.CutPrefix(item, "["); ok && strings.HasSuffix(inner, "]") {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || !isHost(host) {
		return "", 0, fmt.Errorf("%q is not HOST:PORT", item)
	}
	return host, int32(n), nil
}

// isHost reports whether s may be the name or the IP address of a host.
func isHost(s string) bool {
	if strings.Contains(s, ":") {
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return s != "" && !strings.ContainsAny(s, " /@[]")
}
